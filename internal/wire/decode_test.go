package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// refuses wants ErrMalformed and the message left as it was.
func refuses(t *testing.T, m message, src []byte) {
	t.Helper()
	before := fmt.Sprintf("%+v", m)
	err := m.ReadFrom(src)
	if !errors.Is(err, ErrMalformed) {
		t.Errorf("%T read %x with %v, want ErrMalformed", m, src, err)
	}
	if after := fmt.Sprintf("%+v", m); after != before {
		t.Errorf("refused %x, and yet became %s", src, after)
	}
}

func TestCutShortAndLeftOver(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, v := range vectors() {
		t.Run(v.name, func(t *testing.T) {
			whole := v.bytes(t)
			for n := range whole {
				refuses(t, blank(v.message), whole[:n])
			}
			refuses(t, blank(v.message), append(whole, 0))
		})
	}
}

// TestUnknownTags puts tagged fields that we do not know at the end of each
// structure, one structure at a time and all together.
func TestUnknownTags(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const (
		none    = "00"
		unknown = "02 07 03aabbcc e307 00" // tag 7 of 3 bytes, tag 995 of none
	)
	for _, v := range vectors() {
		t.Run(v.name, func(t *testing.T) {
			var ends []int
			for i, f := range v.fields {
				if strings.HasSuffix(f, "; no tags") {
					ends = append(ends, i)
				}
			}
			if len(ends) == 0 {
				t.Fatal("the vector marks no end of a structure")
			}
			tagged := func(at ...int) []byte {
				w := v
				w.fields = append([]string(nil), v.fields...)
				for _, i := range at {
					w.fields[i] = strings.Replace(w.fields[i], none, unknown, 1)
				}
				return growLeader(t, w)
			}
			for _, i := range ends {
				readsAs(t, v.message, tagged(i))
			}
			readsAs(t, v.message, tagged(ends...))
		})
	}
}

// growLeader sets the size of KIP93's CurrentLeader where tags were put in it.
func growLeader(t *testing.T, v vector) []byte {
	const size = "00 09"
	for i, f := range v.fields {
		if strings.Contains(f, "CurrentLeader") && strings.Contains(v.fields[i+3], "aabbcc") {
			v.fields[i] = strings.Replace(f, size, "00 11", 1) // 8 bytes more
		}
	}
	return v.bytes(t)
}

func readsAs(t *testing.T, want message, src []byte) {
	t.Helper()
	got := blank(want)
	if err := got.ReadFrom(src); err != nil {
		t.Errorf("%x: %v", src, err)
	} else if !equal(got, want) {
		t.Errorf("%x is read as %+v, want %+v", src, got, want)
	}
}

// TestLeaderOfAnotherProfile: Draft95 has no CurrentLeader, so that tag 0 is
// one it does not know.
func TestLeaderOfAnotherProfile(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	kip := Response{Profile: KIP93, Topics: []ResponseTopic{{Partitions: []ResponsePartition{{ErrorCode: 6, CurrentLeader: &CurrentLeader{1, 2}}}}}}
	draft := Response{Profile: Draft95, Topics: []ResponseTopic{{Partitions: []ResponsePartition{{ErrorCode: 6}}}}}
	readsAs(t, &draft, kip.AppendTo(nil))

	// Nor does it write one.
	leading := draft
	leading.Topics = []ResponseTopic{{Partitions: []ResponsePartition{kip.Topics[0].Partitions[0]}}}
	if !bytes.Equal(leading.AppendTo(nil), draft.AppendTo(nil)) {
		t.Error("draft95 writes a CurrentLeader")
	}
}

func TestMalformed(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const (
		reqHead  = "00 02 67 0000000000000001 0000 02 6d 00000001 " // up to Topics
		respHead = "00000000 0000 "                                 // up to Responses
		topic    = "0a000000000000000000000000000001 "
		offsets  = "0000000000000000 0000000000000001 "
	)
	draftReq, draftResp := &Request{Profile: Draft95}, &Response{Profile: Draft95}
	kipReq, kipResp := &Request{Profile: KIP93}, &Response{Profile: KIP93}
	for _, c := range []struct {
		name string
		m    message
		hex  string
		ok   bool // the neighbour that is well formed
	}{
		{"nothing", draftReq, "", false},
		{"nothing", draftResp, "", false},

		{"no topics", draftReq, reqHead + "01 00", true},
		{"null group", draftReq, "00 00 0000000000000001 0000 02 6d 00000001 01 00", false},
		{"null member", draftReq, "00 02 67 0000000000000001 0000 00 00000001 01 00", false},
		{"null topics", draftReq, reqHead + "00 00", false},
		{"null partitions", draftReq, reqHead + "02" + topic + "00 00 00", false},
		{"no partitions", draftReq, reqHead + "02" + topic + "01 00 00", true},
		{"null batches", draftReq, reqHead + "02" + topic + "02 00000000 00 00 00 00", false},
		{"no batches", draftReq, reqHead + "02" + topic + "02 00000000 01 00 00 00", true},
		{"null types", draftReq, reqHead + "02" + topic + "02 00000000 02" + offsets + "00 00 00 00 00", false},
		{"no types: not for decoding to judge", draftReq, reqHead + "02" + topic + "02 00000000 02" + offsets + "01 00 00 00 00", true},
		{"unknown type: the same", draftReq, reqHead + "02" + topic + "02 00000000 02" + offsets + "02 7f 00 00 00 00", true},
		{"more types than bytes", draftReq, reqHead + "02" + topic + "02 00000000 02" + offsets + "06 01 00 00 00 00", false},
		{"one type", kipReq, reqHead + "02" + topic + "02 00000000 02" + offsets + "01 00 00 00 00", true},
		{"a list where one type is due", kipReq, reqHead + "02" + topic + "02 00000000 02" + offsets + "02 01 00 00 00 00", false},
		{"one type where a list is due", draftReq, reqHead + "02" + topic + "02 00000000 02" + offsets + "03 00 00 00 00", false},
		{"group longer than the bytes", draftReq, "00 7f 67 0000000000000001 0000 02 6d 00000001 01 00", false},
		{"group of 4 GiB", draftReq, "00 ffffffff0f 67 0000000000000001 0000 02 6d 00000001 01 00", false},
		{"group not UTF-8", draftReq, "00 02 ff 0000000000000001 0000 02 6d 00000001 01 00", false},
		{"transactional id not UTF-8", draftReq, "02 ff 02 67 0000000000000001 0000 02 6d 00000001 01 00", false},
		{"topics: more than the bytes", draftReq, reqHead + "03" + topic + "01 00 00", false},
		{"topics: 4 Gi", draftReq, reqHead + "ffffffff0f 00", false},
		{"varint without end", draftReq, reqHead + "ffffffffffffffffffff", false},
		{"varint of 33 bits", draftReq, reqHead + "8080808010 00", false},
		{"varint of six bytes", draftReq, reqHead + "818080808000 00", false},
		{"varint longer than need be, as Kafka takes it", draftReq, reqHead + "8100 00", true},
		{"tags: 4 Gi", draftReq, reqHead + "01 ffffffff0f", false},
		{"tag of 4 GiB", draftReq, reqHead + "01 01 00 ffffffff0f 00", false},
		{"tag without size", draftReq, reqHead + "01 01 05", false},
		{"tag", draftReq, reqHead + "01 01 05 01 ff", true},

		{"null responses", draftResp, respHead + "00 00", false},
		{"null partitions", draftResp, respHead + "02" + topic + "00 00 00", false},
		{"message longer than the bytes", draftResp, respHead + "02" + topic + "02 00000000 0000 09 00 00 00", false},
		{"message", draftResp, respHead + "02" + topic + "02 00000000 0000 02 61 00 00 00", true},
		{"message not UTF-8", draftResp, respHead + "02" + topic + "02 00000000 0000 02 80 00 00 00", false},
		{"leader", kipResp, respHead + "02" + topic + "02 00000000 0006 00 01 00 09 00000001 00000002 00 00 00", true},
		{"leader too short", kipResp, respHead + "02" + topic + "02 00000000 0006 00 01 00 08 00000001 00000002 00 00", false},
		{"leader with bytes left over", kipResp, respHead + "02" + topic + "02 00000000 0006 00 01 00 0a 00000001 00000002 00 ff 00 00", false},
		{"the same for a profile without one", draftResp, respHead + "02" + topic + "02 00000000 0006 00 01 00 0a 00000001 00000002 00 ff 00 00", true},
		{"an answer of another API", draftResp, "00000000 0023 00000000", false},
	} {
		t.Run(fmt.Sprintf("%T %s", c.m, c.name), func(t *testing.T) {
			src := vector{name: c.name, fields: []string{c.hex}}.bytes(t)
			if !c.ok {
				refuses(t, blank(c.m), src)
				return
			}
			if err := blank(c.m).ReadFrom(src); err != nil {
				t.Errorf("well formed, but %v", err)
			}
		})
	}
}

// TestErrorSaysWhere: an operator must see which field was wrong.
func TestErrorSaysWhere(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	err := (&Response{Profile: Draft95}).ReadFrom([]byte{0, 0, 0, 0, 0, 0, 0xff, 0x7f})
	if err == nil || !strings.Contains(err.Error(), "Responses") {
		t.Errorf("got %v, want the field named", err)
	}
}

// TestMemoryFollowsInput: the bytes allocated stay within a fixed multiple of
// the input, whatever lengths it claims on whichever level.
func TestMemoryFollowsInput(t *testing.T) {
	testkit.Deadline(t, 60*time.Second)
	const (
		factor = 16   // elements are a few times larger in memory than on the wire
		fixed  = 4096 // the message, the error
	)
	zeros := make([]byte, 1<<16)
	for _, v := range vectors() {
		whole := v.bytes(t)
		for n := range whole {
			for _, claim := range [][]byte{{0xff, 0xff, 0xff, 0xff, 0x0f}, {0xff, 0xff, 0x03}, {0xff, 0x7f}} {
				// From here on: a huge length, and bytes that it may take.
				src := append(append(append([]byte(nil), whole[:n]...), claim...), zeros...)
				m := blank(v.message)
				got := allocated(func() { _ = m.ReadFrom(src) })
				if limit := uint64(len(src))*factor + fixed; got > limit {
					t.Fatalf("%s, byte %d, length %x: %d bytes allocated for %d of input", v.name, n, claim, got, len(src))
				}
				// And without them nothing may be made at all.
				src = src[:n+len(claim)]
				got = allocated(func() { _ = m.ReadFrom(src) })
				if limit := uint64(len(src))*factor + fixed; got > limit {
					t.Fatalf("%s, byte %d, length %x: %d bytes allocated for %d of input", v.name, n, claim, got, len(src))
				}
			}
		}
	}
}

// allocated is how many bytes f allocates, the least of some runs, since other
// goroutines of the test binary allocate too.
func allocated(f func()) uint64 {
	least := uint64(math.MaxUint64)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}
