package sharetxntest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// network is TCP on 127.0.0.1, in memory: testing/synctest moves its clock only
// while every goroutine waits for something inside the bubble, and a socket is
// not. Its errors are those of real sockets, since clients decide by them.
type network struct {
	mu        sync.Mutex
	listeners map[int]*listener
	next      int // port that is given out next
}

// firstPort is Kafka's own.
const firstPort = 9092

func newNetwork() *network {
	return &network{listeners: make(map[int]*listener), next: firstPort}
}

// Listen is net.Listen; port 0 is one that was never used before.
func (n *network) Listen(_, address string) (net.Listener, error) {
	addr, err := parseAddr(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if addr.Port == 0 {
		addr.Port, n.next = n.next, n.next+1
	}
	if n.listeners[addr.Port] != nil {
		return nil, sysError("listen", addr, "bind", syscall.EADDRINUSE)
	}
	l := &listener{net: n, addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[addr.Port] = l
	return l, nil
}

// DialContext is for kgo.Dialer.
func (n *network) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	addr, err := parseAddr(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	l := n.listeners[addr.Port]
	n.mu.Unlock()
	if l == nil {
		return nil, sysError("dial", addr, "connect", syscall.ECONNREFUSED)
	}
	near, far := net.Pipe()
	select {
	case l.conns <- &conn{far, addr}:
		return &conn{near, addr}, nil
	case <-l.closed:
		return nil, sysError("dial", addr, "connect", syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: addr, Err: ctx.Err()}
	}
}

func parseAddr(address string) (*net.TCPAddr, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, &net.AddrError{Err: "no port number", Addr: address}
	}
	ip := net.ParseIP(host)
	if !ip.IsLoopback() {
		return nil, &net.AddrError{Err: "the virtual network has no host but 127.0.0.1", Addr: address}
	}
	return &net.TCPAddr{IP: ip, Port: number}, nil
}

func sysError(op string, addr net.Addr, call string, code syscall.Errno) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: addr, Err: os.NewSyscallError(call, code)}
}

type listener struct {
	net    *network
	addr   *net.TCPAddr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		delete(l.net.listeners, l.addr.Port)
		l.net.mu.Unlock()
		close(l.closed)
	})
	return nil
}

// conn is one end. Both show the listener's address as the other's: nothing
// here tells clients apart by address.
type conn struct {
	net.Conn
	addr *net.TCPAddr
}

func (c *conn) LocalAddr() net.Addr  { return c.addr }
func (c *conn) RemoteAddr() net.Addr { return c.addr }

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.ErrClosedPipe) { // closed at this end
		err = net.ErrClosed
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = sysError("write", c.addr, "write", syscall.EPIPE)
	}
	return n, err
}
