package front

import (
	"context"
	"net"
	"sync"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// backListener is what kfake listens on: pipes whose other ends the front
// holds.
type backListener struct {
	addr net.Addr
	ch   chan net.Conn
	done chan struct{}
	once sync.Once
}

func newBackListener(addr net.Addr) *backListener {
	return &backListener{addr: addr, ch: make(chan net.Conn), done: make(chan struct{})}
}

func (l *backListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ch:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *backListener) Addr() net.Addr { return l.addr }

func (l *backListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *backListener) dial(remote net.Addr) (net.Conn, error) {
	a, b := newPipe()
	select {
	case l.ch <- addrConn{b, remote}:
		return a, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// internalConn carries one request at a time from the front to kfake.
type internalConn struct {
	net.Conn
	correlation int32
}

// Do asks kfake's broker of this node and waits for the answer. Connections
// are pooled, so no lock is held while waiting.
func (b *Broker) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	var c *internalConn
	select {
	case c = <-b.pool:
	default:
		conn, err := b.back.dial(pipeAddr{})
		if err != nil {
			return nil, err
		}
		c = &internalConn{Conn: conn}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	resp, err := c.do(req)
	if !stop() || err != nil {
		_ = c.Close()
		if err == nil {
			return resp, nil // answered just before ctx ended
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	select {
	case b.pool <- c:
	default:
		_ = c.Close()
	}
	return resp, nil
}

func (c *internalConn) do(req kmsg.Request) (kmsg.Response, error) {
	c.correlation++
	if _, err := c.Write(frame.AppendRequest(nil, c.correlation, "front", req)); err != nil {
		return nil, err
	}
	raw, err := frame.Read(c, nil)
	if err != nil {
		return nil, err
	}
	return frame.ReadResponse(raw, req)
}

func (b *Broker) drainPool() {
	for {
		select {
		case c := <-b.pool:
			_ = c.Close()
		default:
			return
		}
	}
}
