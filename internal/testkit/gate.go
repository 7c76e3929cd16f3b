package testkit

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
)

// DialFunc is what kgo.Dialer takes.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Gate is a process's network. It can be held: nothing is lost, all is late, as
// for a process that is stopped. It can be cut: nothing goes through any more, as
// for one that was killed. Safe for concurrent use.
type Gate struct {
	through DialFunc

	mu    sync.Mutex
	way   chan struct{} // closed: open
	cut   bool
	conns map[net.Conn]bool
}

// NewGate is open.
func NewGate(through DialFunc) *Gate {
	g := &Gate{through: through, way: make(chan struct{}), conns: make(map[net.Conn]bool)}
	close(g.way)
	return g
}

// Hold makes everything wait until Open.
func (g *Gate) Hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.way:
		if !g.cut {
			g.way = make(chan struct{})
		}
	default:
	}
}

// Open lets go what was held.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.way:
	default:
		close(g.way)
	}
}

// Kill cuts all connections and refuses new ones, for good.
func (g *Gate) Kill() {
	g.mu.Lock()
	g.cut = true
	conns := g.conns
	g.conns = nil
	g.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
	g.Open()
}

// wait returns when the gate is open, with the error of one that is cut.
func (g *Gate) wait(ctx context.Context) error {
	g.mu.Lock()
	way := g.way
	g.mu.Unlock()
	select {
	case <-way:
	case <-ctx.Done():
		return ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cut {
		return os.NewSyscallError("connect", syscall.ECONNREFUSED)
	}
	return nil
}

// keep remembers a connection; false if it came too late.
func (g *Gate) keep(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cut {
		return false
	}
	g.conns[c] = true
	return true
}

// Dial is for kgo.Dialer.
func (g *Gate) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	refused := func(err error) error { return &net.OpError{Op: "dial", Net: network, Err: err} }
	if err := g.wait(ctx); err != nil {
		return nil, refused(err)
	}
	c, err := g.through(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if !g.keep(c) {
		_ = c.Close()
		return nil, refused(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	return gatedConn{c, g}, nil
}

type gatedConn struct {
	net.Conn
	g *Gate
}

func (c gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if held := c.g.wait(context.Background()); held != nil {
		return 0, net.ErrClosed
	}
	return n, err
}

func (c gatedConn) Write(b []byte) (int, error) {
	if held := c.g.wait(context.Background()); held != nil {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func (c gatedConn) Close() error {
	c.g.mu.Lock()
	delete(c.g.conns, c.Conn)
	c.g.mu.Unlock()
	return c.Conn.Close()
}
