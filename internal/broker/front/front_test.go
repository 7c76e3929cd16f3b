package front

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handler forwards, or does what serve says.
type handler struct {
	serve  func(ctx context.Context, c *Conn, q frame.Request) ([]byte, error)
	closed atomic.Int32
}

func (h *handler) Serve(ctx context.Context, c *Conn, q frame.Request) ([]byte, error) {
	if h.serve == nil {
		return c.Forward(q.Raw, true)
	}
	return h.serve(ctx, c, q)
}

func (h *handler) ConnClosed(*Conn) { h.closed.Add(1) }

// startFront starts a node on loopback whose kfake answers each request with
// the same frame; it gives the addresses that kfake saw.
func startFront(t *testing.T, h *handler) (b *Broker, accepted func() []string) {
	t.Helper()
	var lc net.ListenConfig
	pub, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	die, cancel := context.WithCancel(context.Background())
	b, back := New(Config{
		Node: 0, Handler: h, Public: pub, IDs: new(atomic.Uint64), Die: die,
		Listen: func() (net.Listener, error) { return lc.Listen(die, "tcp", pub.Addr().String()) },
	})
	var (
		mu   sync.Mutex
		from []string
		wg   sync.WaitGroup
	)
	wg.Go(func() {
		for {
			c, err := back.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			from = append(from, c.RemoteAddr().String())
			mu.Unlock()
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				for {
					raw, err := frame.Read(c, nil)
					if err != nil {
						return
					}
					if _, err := c.Write(raw); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { cancel(); b.Close(); wg.Wait() })
	return b, func() []string { mu.Lock(); defer mu.Unlock(); return from }
}

func connect(ctx context.Context, t *testing.T, b *Broker) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	t.Cleanup(func() { stop(); _ = c.Close() })
	return c
}

func request(correlation int32) []byte {
	return frame.AppendRequest(nil, correlation, "me", kmsg.NewPtrApiVersionsRequest())
}

// Pipelined requests are answered in order, by kfake on one connection that
// shows the client's address.
func TestForward(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	b, accepted := startFront(t, &handler{})
	c := connect(ctx, t, b)
	const n = 100
	var sent []byte
	for i := range int32(n) {
		sent = append(sent, request(i)...)
	}
	if _, err := c.Write(sent); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Fatal("answers are not in the requests' order")
	}
	if from := accepted(); len(from) != 1 || from[0] != c.LocalAddr().String() {
		t.Fatalf("kfake saw %q, the client is %s", from, c.LocalAddr())
	}
}

// A client that hangs up ends its request that waits.
func TestHangUp(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	waiting, ended := make(chan struct{}), make(chan struct{})
	h := &handler{serve: func(ctx context.Context, _ *Conn, _ frame.Request) ([]byte, error) {
		close(waiting)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}}
	b, _ := startFront(t, h)
	c := connect(ctx, t, b)
	if _, err := c.Write(append(request(1), request(2)...)); err != nil {
		t.Fatal(err)
	}
	<-waiting
	_ = c.Close()
	select {
	case <-ended:
	case <-ctx.Done():
		t.Fatal("the request still waits")
	}
	testkit.Eventually(ctx, t, "the handler is told once", func() bool { return h.closed.Load() == 1 && b.Conns() == 0 })
}

// A node stops although a client sent more than is read ahead of a request that
// waits, and starts again at its address.
func TestStopWithRequestsWaiting(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	waiting := make(chan struct{}, 1)
	h := &handler{serve: func(ctx context.Context, c *Conn, q frame.Request) ([]byte, error) {
		if q.CorrelationID >= 0 {
			return c.Forward(q.Raw, true)
		}
		waiting <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	b, _ := startFront(t, h)
	addr := b.Addr()
	c := connect(ctx, t, b)
	for i := range int32(readAhead + 3) {
		if _, err := c.Write(request(i - 1)); err != nil {
			t.Fatal(err)
		}
	}
	<-waiting
	stopped := make(chan struct{})
	go func() { defer close(stopped); b.Stop() }()
	select {
	case <-stopped:
	case <-ctx.Done():
		t.Fatal("Stop still waits")
	}
	if _, err := io.ReadAll(c); errors.Is(err, net.ErrClosed) {
		t.Fatal("the connection was not cut")
	}
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(); err == nil {
		t.Error("started twice")
	}
	if b.Addr() != addr {
		t.Errorf("address %s, before %s", b.Addr(), addr)
	}
	c = connect(ctx, t, b)
	want := request(7)
	if _, err := c.Write(want); err != nil {
		t.Fatal(err)
	}
	if got, err := frame.Read(c, nil); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("answer %x, %v", got, err)
	}
}

// What is no request cuts its connection and no other.
func TestBadFrame(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	b, _ := startFront(t, &handler{})
	beside := connect(ctx, t, b)
	for _, bad := range [][]byte{{0, 0, 0, 2, 1, 2}, {0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 0}} {
		c := connect(ctx, t, b)
		if _, err := c.Write(bad); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); len(got) > 0 || errors.Is(err, net.ErrClosed) {
			t.Errorf("%x: %d bytes answered, %v", bad, len(got), err)
		}
	}
	want := request(1)
	if _, err := beside.Write(want); err != nil {
		t.Fatal(err)
	}
	if got, err := frame.Read(beside, nil); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the neighbour's answer %x, %v", got, err)
	}
}

// An internal request ends with its context, and its connection is not used
// again.
func TestDo(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	b := &Broker{back: newBackListener(addr), pool: make(chan *internalConn, 1)}
	req := kmsg.NewPtrApiVersionsRequest()
	answer := func(c net.Conn) {
		raw, err := frame.Read(c, nil)
		if err != nil {
			t.Errorf("no request: %v", err)
			return
		}
		q, err := frame.Parse(raw)
		if err != nil {
			t.Error(err)
			return
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.ErrorCode = 42
		if _, err := c.Write(frame.AppendResponse(nil, q.CorrelationID, resp)); err != nil {
			t.Error(err)
		}
	}
	conns := make(chan net.Conn, 2)
	go func() {
		defer close(conns)
		for {
			c, err := b.back.Accept()
			if err != nil {
				return
			}
			conns <- c
		}
	}()
	// Silent: the context ends it.
	short, cancel := context.WithCancel(ctx)
	got := make(chan error, 1)
	go func() { _, err := b.Do(short, req); got <- err }()
	first := <-conns
	if _, err := frame.Read(first, nil); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	// Answered, twice on one new connection.
	for i := range 2 {
		go func() { _, err := b.Do(ctx, req); got <- err }()
		if i == 0 {
			first = <-conns
		}
		answer(first)
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	}
	b.drainPool()
	_ = b.back.Close()
	if _, err := b.Do(ctx, req); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	for range conns {
		t.Error("a third connection was made")
	}
}

// A pipe keeps order and bounds how far a writer is ahead; closing either end
// frees whoever waits, and what was written can still be read.
func TestPipe(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	a, b := newPipe()
	chunk := make([]byte, pipeBuffer/2)
	for i := range chunk {
		chunk[i] = byte(i)
	}
	wrote := make(chan error, 1)
	go func() {
		for range 6 {
			if _, err := a.Write(chunk); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- nil
	}()
	got := make([]byte, len(chunk))
	for i := range 6 {
		if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, chunk) {
			t.Fatalf("chunk %d: %v", i, err)
		}
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	// a's reader waits for what never comes; its writer for room.
	read := make(chan error, 1)
	go func() { _, err := a.Read(make([]byte, 1)); read <- err }()
	go func() {
		for {
			if _, err := a.Write(chunk); err != nil {
				wrote <- err
				return
			}
		}
	}()
	testkit.Eventually(ctx, t, "the writer is as far ahead as it may be", func() bool {
		h := b.(*pipe).in
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.buf)-h.read > pipeBuffer
	})
	_ = b.Close()
	if err := <-read; !errors.Is(err, io.EOF) {
		t.Errorf("read: %v", err)
	}
	if err := <-wrote; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write: %v", err)
	}
	if n, err := io.Copy(io.Discard, b); err != nil || n <= pipeBuffer {
		t.Errorf("%d bytes were left, %v", n, err)
	}
}

// A frame that comes with an error is the connection's last answer.
func TestAnswerThenClose(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	h := new(handler)
	h.serve = func(_ context.Context, c *Conn, q frame.Request) ([]byte, error) {
		out, err := c.Forward(q.Raw, true)
		return out, errors.Join(err, errors.New("the last one"))
	}
	b, _ := startFront(t, h)
	c := connect(ctx, t, b)
	sent := request(7)
	if _, err := c.Write(sent); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c) // until it is closed
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d bytes of %d, %v", len(got), len(sent), err)
	}
	testkit.Eventually(ctx, t, "the connection is forgotten", func() bool { return h.closed.Load() == 1 })
}
