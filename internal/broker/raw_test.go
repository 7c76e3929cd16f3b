package broker

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wireConn is a connection to a node without a client library.
type wireConn struct {
	t *testing.T
	net.Conn
	correlation int32
}

func dial(ctx context.Context, t *testing.T, c *Cluster, node int) *wireConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.Seeds()[node])
	if err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	t.Cleanup(func() { stop(); _ = conn.Close() })
	return &wireConn{t: t, Conn: conn}
}

// send writes a request and gives its length as a frame.
func (w *wireConn) send(req kmsg.Request) int {
	w.t.Helper()
	w.correlation++
	raw := frame.AppendRequest(nil, w.correlation, "raw", req)
	if _, err := w.Write(raw); err != nil {
		w.t.Fatal(err)
	}
	return len(raw)
}

// receive reads the answer to req, which must be the next one.
func (w *wireConn) receive(req kmsg.Request) kmsg.Response {
	w.t.Helper()
	raw, err := frame.Read(w, nil)
	if err != nil {
		w.t.Fatalf("no answer: %v", err)
	}
	resp, err := frame.ReadResponse(raw, req)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp
}

// wantCut fails the test unless the node closed the connection without a word.
func (w *wireConn) wantCut() {
	w.t.Helper()
	raw, err := frame.Read(w, nil)
	if err == nil {
		w.t.Fatalf("answered with %d bytes", len(raw))
	}
	if errors.Is(err, net.ErrClosed) {
		w.t.Fatal("not cut before the test's own deadline")
	}
}

func ask[T kmsg.Response](ctx context.Context, t *testing.T, cl *kgo.Client, req kmsg.Request) T {
	t.Helper()
	resp, err := cl.Request(ctx, req)
	if err != nil {
		t.Fatalf("key %d: %v", req.Key(), err)
	}
	return resp.(T)
}
