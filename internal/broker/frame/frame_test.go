package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func metadata(version int16) *kmsg.MetadataRequest {
	topic := "in"
	req := kmsg.NewPtrMetadataRequest()
	req.Version = version
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	return req
}

func staging() *wire.Request {
	id := "x"
	return &wire.Request{Profile: wire.Draft95, TransactionalID: &id, ProducerID: 7, GroupID: "g", MemberID: "m"}
}

// What AppendRequest writes is what Read, Parse and Message read, whatever the
// header's form.
func TestRequestRoundTrip(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, tc := range []struct {
		name string
		req  kmsg.Request
	}{
		{"plain header", metadata(7)},
		{"flexible header", metadata(12)},
		{"a key kmsg does not know", staging()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sent := AppendRequest(nil, 42, "me", tc.req)
			raw, err := Read(iotest.OneByteReader(bytes.NewReader(append(sent, "next"...))), nil)
			if err != nil || !bytes.Equal(raw, sent) {
				t.Fatalf("read %x, %v", raw, err)
			}
			q, err := Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			if q.Key != tc.req.Key() || q.Version != tc.req.GetVersion() || q.CorrelationID != 42 || q.ClientID != "me" {
				t.Fatalf("header %+v", q)
			}
			m, err := q.Message(wire.Draft95)
			if err != nil {
				t.Fatal(err)
			}
			if got := m.AppendTo(nil); !bytes.Equal(got, tc.req.AppendTo(nil)) {
				t.Fatalf("body %x", got)
			}
		})
	}
}

// Staging is a request only where the node speaks its profile.
func TestMessageByProfile(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	q, err := Parse(AppendRequest(nil, 1, "me", staging()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Message(wire.Draft95); err != nil {
		t.Errorf("draft95: %v", err)
	}
	for _, p := range []wire.Profile{wire.None, wire.KIP93} {
		if _, err := q.Message(p); !errors.Is(err, ErrBad) {
			t.Errorf("%v: %v", p, err)
		}
	}
	q.Key = -1
	if _, err := q.Message(wire.None); !errors.Is(err, ErrBad) {
		t.Errorf("key -1: %v", err)
	}
}

func TestResponseRoundTrip(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, tc := range []struct {
		name string
		req  kmsg.Request
	}{
		{"plain header", metadata(7)},
		{"flexible header", metadata(12)},
		{"ApiVersions, flexible with a plain header", &kmsg.ApiVersionsRequest{Version: 3}},
		{"staging", staging()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := tc.req.ResponseKind()
			raw := AppendResponse(nil, 42, want)
			if n := binary.BigEndian.Uint32(raw); int(n) != len(raw)-4 {
				t.Fatalf("length %d of %d bytes", n, len(raw))
			}
			if c := binary.BigEndian.Uint32(raw[4:]); c != 42 {
				t.Fatalf("correlation %d", c)
			}
			got, err := ReadResponse(raw, tc.req)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.AppendTo(nil), want.AppendTo(nil)) {
				t.Fatalf("got %+v", got)
			}
		})
	}
}

func TestErrorCode(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	resp := (&kmsg.ApiVersionsRequest{Version: 0}).ResponseKind().(*kmsg.ApiVersionsResponse)
	resp.ErrorCode = 35
	raw := AppendResponse(nil, 1, resp)
	if code := ErrorCode(raw); code != 35 {
		t.Errorf("code %d", code)
	}
	if code := ErrorCode(raw[:9]); code != 0 {
		t.Errorf("code %d of a cut answer", code)
	}
}

func TestBadFrames(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	good := AppendRequest(nil, 1, "client", metadata(12))
	tooLong := binary.BigEndian.AppendUint32(nil, Max+1)
	if _, err := Read(bytes.NewReader(tooLong), nil); !errors.Is(err, ErrBad) {
		t.Errorf("a frame of %d bytes: %v", Max+1, err)
	}
	negative := []byte{0xff, 0xff, 0xff, 0xff}
	if _, err := Read(bytes.NewReader(negative), nil); !errors.Is(err, ErrBad) {
		t.Errorf("a frame of negative length: %v", err)
	}
	if _, err := Read(bytes.NewReader(good[:len(good)-1]), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut frame: %v", err)
	}
	for n := range 20 { // within the header
		if _, err := Parse(good[:n]); !errors.Is(err, ErrBad) {
			t.Errorf("a header of %d bytes: %v", n, err)
		}
	}
	q, err := Parse(good)
	if err != nil {
		t.Fatal(err)
	}
	q.Body = q.Body[:len(q.Body)-2]
	if _, err := q.Message(wire.Draft95); !errors.Is(err, ErrBad) {
		t.Errorf("a cut body: %v", err)
	}
	q.Version = 999
	if _, err := q.Message(wire.Draft95); !errors.Is(err, ErrBad) {
		t.Errorf("version 999: %v", err)
	}
	if _, err := ReadResponse(good[:7], metadata(12)); !errors.Is(err, ErrBad) {
		t.Errorf("an answer of 7 bytes: %v", err)
	}
}

// A prefix that claims much does not take the memory before the bytes come.
func TestReadTakesMemoryAsBytesCome(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	claim := append(binary.BigEndian.AppendUint32(nil, Max), make([]byte, 100)...)
	n := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := Read(bytes.NewReader(claim), nil); err == nil {
				b.Fatal("a cut frame was read")
			}
		}
	}).AllocedBytesPerOp()
	if n > Max/20 {
		t.Errorf("%d bytes taken for 100", n)
	}
}

// Read reuses the buffer it is given.
func TestReadReuses(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	buf := make([]byte, 0, 1024)
	raw, err := Read(bytes.NewReader(AppendRequest(nil, 1, "me", metadata(12))), buf)
	if err != nil {
		t.Fatal(err)
	}
	if &raw[0] != &buf[:1][0] {
		t.Error("another buffer was made")
	}
}

// Whatever comes, nothing panics, and what is taken says the same again.
func FuzzParse(f *testing.F) {
	f.Add(AppendRequest(nil, 1, "me", metadata(7)))
	f.Add(AppendRequest(nil, 1, "me", metadata(12)))
	f.Add(AppendRequest(nil, 1, "me", staging()))
	f.Add([]byte{0, 0, 0, 9, 0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		raw, err := Read(bytes.NewReader(in), nil)
		if err != nil {
			return
		}
		q, err := Parse(raw)
		if err != nil {
			return
		}
		m, err := q.Message(wire.Draft95)
		if err != nil {
			return
		}
		again, err := Parse(AppendRequest(nil, q.CorrelationID, q.ClientID, m))
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if again.Key != q.Key || again.Version != q.Version || again.CorrelationID != q.CorrelationID || again.ClientID != q.ClientID {
			t.Fatalf("%+v became %+v", q, again)
		}
		if _, err := again.Message(wire.Draft95); err != nil {
			t.Fatalf("the body cannot be read again: %v", err)
		}
	})
}
