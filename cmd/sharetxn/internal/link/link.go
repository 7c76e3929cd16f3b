// Package link is the network of one process of the demo: all connections that
// it dials, so that a process can be killed or paused as a whole while the
// others run on, and one of its requests or an answer be lost.
package link

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
)

// Link is one process's network. The zero Link works; safe for concurrent use.
type Link struct {
	// Watch says of each request what becomes of it when it is about to leave; nil
	// lets all go. To be set before the first dial. It is called from the
	// connections' goroutines.
	Watch func(frame.Request) Fate

	mu    sync.Mutex
	held  chan struct{} // closed by Resume; nil: nothing is held
	cut   bool
	conns map[*conn]struct{}
}

// DialContext is for kgo.Dialer.
func (l *Link) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if err := l.pass(ctx.Done()); err != nil {
		return nil, err
	}
	var d net.Dialer
	inner, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, link: l, closed: make(chan struct{}), awaited: make(map[int32]Fate)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		_ = inner.Close()
		return nil, refused()
	}
	if l.conns == nil {
		l.conns = make(map[*conn]struct{})
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// Hold pauses the process as its peers see it: from now on nothing leaves and
// nothing arrives. What was written before is on its way.
func (l *Link) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil && !l.cut {
		l.held = make(chan struct{})
	}
}

// Resume undoes Hold: what was held goes on, in order.
func (l *Link) Resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resume()
}

func (l *Link) resume() {
	if l.held != nil {
		close(l.held)
		l.held = nil
	}
}

// Cut kills the process as its peers see it: all connections end, and no other
// is made. Idempotent.
func (l *Link) Cut() {
	l.mu.Lock()
	l.cut = true
	conns := l.conns
	l.conns = nil
	l.resume()
	l.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
}

// pass waits while the link is held; the error says that it is cut, or that
// ended was closed first.
func (l *Link) pass(ended <-chan struct{}) error {
	for {
		l.mu.Lock()
		held, cut := l.held, l.cut
		l.mu.Unlock()
		switch {
		case cut:
			return refused()
		case held == nil:
			return nil
		}
		select {
		case <-held:
		case <-ended:
			return net.ErrClosed
		}
	}
}

// refused is what the dial of a process that is no more would say; clients
// decide by it.
func refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// conn is a connection whose traffic the link can hold. Like kgo it takes one
// Write and one Read at a time.
type conn struct {
	net.Conn
	link   *Link
	once   sync.Once
	closed chan struct{}

	unsent []byte // of a request that is not whole yet
	answer []byte // what Read read last
	unread []byte // of answer

	mu      sync.Mutex
	awaited map[int32]Fate // by correlation id; nil once the connection has ended
}

func (c *conn) Read(b []byte) (n int, err error) {
	if c.link.Watch == nil {
		n, err = c.Conn.Read(b)
	} else {
		n, err = c.receive(b)
	}
	if held := c.link.pass(c.closed); held != nil {
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.link.pass(c.closed); err != nil {
		return 0, net.ErrClosed
	}
	if c.link.Watch == nil {
		return c.Conn.Write(b)
	}
	return c.send(b)
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.link.mu.Lock()
		delete(c.link.conns, c)
		c.link.mu.Unlock()
		close(c.closed)
		c.forsake()
	})
	return c.Conn.Close()
}
