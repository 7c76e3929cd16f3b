package byhand

import (
	"context"
	"net"
	"sync"
)

// dialer remembers the connections it made, so that they can be cut.
type dialer struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newDialer() *dialer { return &dialer{conns: make(map[net.Conn]struct{})} }

type conn struct {
	net.Conn
	d *dialer
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[c] = struct{}{}
	return &conn{c, d}, nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.d.mu.Lock()
	delete(c.d.conns, c.Conn)
	c.d.mu.Unlock()
	return c.Conn.Close()
}

func (d *dialer) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		_ = c.Close() // its owner closes it again, and is told of nothing else
	}
	clear(d.conns)
}
