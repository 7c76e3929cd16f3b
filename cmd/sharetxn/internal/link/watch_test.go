package link

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func request(id int32, req kmsg.Request) []byte {
	return frame.AppendRequest(nil, id, "me", req)
}

func answer(id int32, req kmsg.Request) []byte {
	return frame.AppendResponse(nil, id, req.ResponseKind())
}

// Requests go on whole and in order, however they are written, and answers as
// they come; whoever asked is shown the answer of his request.
func TestWatch(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	f := serve(t)
	var keys []int16
	shown := make(map[int32][]byte)
	l := Link{Watch: func(q frame.Request) Fate {
		keys = append(keys, q.Key)
		if q.Key != 26 {
			return Fate{}
		}
		return Fate{Then: func(raw []byte) { shown[q.CorrelationID] = slices.Clone(raw) }}
	}}
	near, other := dial(ctx, t, &l, f)
	end, meta := &kmsg.EndTxnRequest{Version: 5}, &kmsg.MetadataRequest{Version: 12}
	sent := slices.Concat(request(1, end), request(2, meta), request(3, end))
	arrives := read(other, len(sent))
	write(t, near, string(sent[:3])) // a bit of a frame
	write(t, near, string(sent[3:len(sent)-2]))
	write(t, near, string(sent[len(sent)-2:]))
	if got := <-arrives; got != string(sent) {
		t.Fatalf("arrived %x, sent %x", got, sent)
	}
	if !slices.Equal(keys, []int16{26, 3, 26}) {
		t.Errorf("saw keys %v", keys)
	}
	back := slices.Concat(answer(1, end), answer(2, meta), answer(3, end))
	comes := read(near, len(back))
	write(t, other, string(back))
	if got := <-comes; got != string(back) {
		t.Errorf("came %x, sent %x", got, back)
	}
	if len(shown) != 2 || !slices.Equal(shown[1], answer(1, end)) || !slices.Equal(shown[3], answer(3, end)) {
		t.Errorf("shown %x", shown)
	}
}

// What is no request goes on all the same.
func TestWatchForeign(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	f := serve(t)
	l := Link{Watch: func(frame.Request) Fate { panic("it is none") }}
	near, other := dial(ctx, t, &l, f)
	arrives := read(other, 6)
	write(t, near, "\x00\x00\x00\x02hi")
	if got := <-arrives; got != "\x00\x00\x00\x02hi" {
		t.Errorf("arrived %q", got)
	}
}

// Each fate is what its request gets: one that is lost never leaves, of one whose
// answer is lost the broker has heard; either ends the connection, and whoever
// waits for other answers is told.
func TestFates(t *testing.T) {
	end, meta := &kmsg.EndTxnRequest{Version: 5}, &kmsg.MetadataRequest{Version: 12}
	for name, c := range map[string]struct {
		fate    Fate
		arrives bool
		shown   bool // the answer
		lost    bool
	}{
		"goes on":     {arrives: true, shown: true},
		"request":     {fate: Fate{LoseRequest: true}, lost: true},
		"answer lost": {fate: Fate{LoseAnswer: true}, arrives: true, shown: true, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 20*time.Second)
			f := serve(t)
			var before int
			fates := make(chan []byte, 2)
			forsaken := make(chan []byte, 2)
			l := Link{Watch: func(q frame.Request) Fate {
				if q.Key != 26 {
					return Fate{Then: func(raw []byte) { forsaken <- raw }}
				}
				fate := c.fate
				fate.Before = func() { before++ }
				fate.Then = func(raw []byte) { fates <- slices.Clone(raw) }
				return fate
			}}
			near, other := dial(ctx, t, &l, f)
			first := request(1, meta)
			arrives := read(other, len(first))
			write(t, near, string(first))
			<-arrives
			arrives = read(other, len(request(2, end)))
			_, err := near.Write(request(2, end))
			if c.arrives != (err == nil) || err != nil && !errors.Is(err, net.ErrClosed) {
				t.Fatalf("write: %v", err)
			}
			if got := <-arrives; c.arrives != (got == string(request(2, end))) {
				t.Errorf("arrived %q", got)
			}
			if before != 1 {
				t.Errorf("Before ran %d times", before)
			}
			if c.arrives {
				comes := read(near, len(answer(2, end)))
				write(t, other, string(answer(2, end)))
				if got := <-comes; c.lost == (got == string(answer(2, end))) {
					t.Errorf("came %q", got)
				}
			}
			if c.shown {
				if raw := <-fates; !slices.Equal(raw, answer(2, end)) {
					t.Errorf("shown %x", raw)
				}
			}
			_ = near.Close()
			if raw := <-forsaken; raw != nil {
				t.Errorf("the other request was answered with %x", raw)
			}
			if len(fates)+len(forsaken) > 0 {
				t.Error("told twice")
			}
		})
	}
}

// A link that Before holds lets its own request go only when it is resumed; one
// that Before cuts never does.
func TestBefore(t *testing.T) {
	for _, cut := range []bool{false, true} {
		ctx := testkit.Deadline(t, 20*time.Second)
		f := serve(t)
		var l Link
		held := make(chan struct{})
		told := make(chan []byte, 1)
		l.Watch = func(frame.Request) Fate {
			return Fate{Then: func(raw []byte) { told <- raw }, Before: func() {
				defer close(held)
				if cut {
					l.Cut()
				} else {
					l.Hold()
				}
			}}
		}
		near, other := dial(ctx, t, &l, f)
		req := request(1, &kmsg.EndTxnRequest{Version: 5})
		arrives := read(other, len(req))
		wrote := make(chan error, 1)
		go func() {
			_, err := near.Write(req)
			wrote <- err
		}()
		<-held
		if cut {
			if err := <-wrote; !errors.Is(err, net.ErrClosed) {
				t.Errorf("write: %v", err)
			}
			if got := <-arrives; got == string(req) {
				t.Error("it left a link that was cut")
			}
			if raw := <-told; raw != nil {
				t.Errorf("answered with %x", raw)
			}
			continue
		}
		select {
		case got := <-arrives:
			t.Fatalf("%q left a held link", got)
		case <-time.After(50 * time.Millisecond):
		}
		l.Resume()
		if got := <-arrives; got != string(req) {
			t.Errorf("arrived %q", got)
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
	}
}
