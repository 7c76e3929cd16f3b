package front

import (
	"io"
	"net"
	"sync"
	"time"
)

// pipe is an in-memory connection with buffers, for the leg between the front
// and kfake: net.Pipe hands over byte by byte between goroutines and costs a
// switch for every write. Waiting is on a sync.Cond, which testing/synctest
// takes as durable.
type pipe struct{ in, out *half }

// half is one direction.
type half struct {
	mu     sync.Mutex
	cond   sync.Cond
	buf    []byte
	read   int
	closed bool
}

// pipeBuffer is how much a writer may be ahead of its reader.
const pipeBuffer = 4 << 20

func newPipe() (net.Conn, net.Conn) {
	a, b := &half{}, &half{}
	a.cond.L, b.cond.L = &a.mu, &b.mu
	return &pipe{a, b}, &pipe{b, a}
}

func (p *pipe) Read(b []byte) (int, error) {
	h := p.in
	h.mu.Lock()
	defer h.mu.Unlock()
	for !h.closed && h.read == len(h.buf) {
		h.cond.Wait()
	}
	if h.read == len(h.buf) {
		return 0, io.EOF
	}
	n := copy(b, h.buf[h.read:])
	h.read += n
	h.cond.Broadcast()
	return n, nil
}

func (p *pipe) Write(b []byte) (int, error) {
	h := p.out
	h.mu.Lock()
	defer h.mu.Unlock()
	for !h.closed && len(h.buf)-h.read > pipeBuffer {
		h.cond.Wait()
	}
	if h.closed {
		return 0, io.ErrClosedPipe
	}
	if h.read == len(h.buf) || h.read >= pipeBuffer { // forget what was read
		h.buf, h.read = h.buf[:copy(h.buf, h.buf[h.read:])], 0
	}
	h.buf = append(h.buf, b...)
	h.cond.Broadcast()
	return len(b), nil
}

func (p *pipe) Close() error {
	for _, h := range []*half{p.in, p.out} {
		h.mu.Lock()
		h.closed = true
		h.cond.Broadcast()
		h.mu.Unlock()
	}
	return nil
}

func (*pipe) LocalAddr() net.Addr  { return pipeAddr{} }
func (*pipe) RemoteAddr() net.Addr { return pipeAddr{} }

// Deadlines do not exist on a pipe: kfake sets none, and the front closes.
func (*pipe) SetDeadline(time.Time) error      { return nil }
func (*pipe) SetReadDeadline(time.Time) error  { return nil }
func (*pipe) SetWriteDeadline(time.Time) error { return nil }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "127.0.0.1:0" } // kfake wants a host and a port

// addrConn is a pipe end that shows kfake the client's address.
type addrConn struct {
	net.Conn
	remote net.Addr
}

func (c addrConn) RemoteAddr() net.Addr { return c.remote }
