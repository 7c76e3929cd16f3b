// Package front is the embedded broker's public side: it owns the listeners and
// the client connections, hands each request to a Handler, and keeps one
// in-memory connection to kfake behind every client connection, for what the
// handler forwards.
package front

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
)

// Handler answers requests. Requests of one connection come one after the
// other; ctx ends when the connection or the broker goes.
type Handler interface {
	// Serve gives the frame to write back; nil for none. An error closes the
	// connection, after that frame if there is one.
	Serve(ctx context.Context, c *Conn, q frame.Request) ([]byte, error)
	// ConnClosed is called once for each connection, after its last request.
	ConnClosed(c *Conn)
}

// Broker is one node.
type Broker struct {
	Node    int32
	handler Handler
	back    *backListener
	listen  func() (net.Listener, error)
	pool    chan *internalConn

	mu    sync.Mutex
	pub   net.Listener
	conns map[*Conn]struct{}
	done  bool

	wg  sync.WaitGroup
	ids *atomic.Uint64
	die context.Context
}

// Config of a Broker.
type Config struct {
	Node    int32
	Handler Handler
	Public  net.Listener
	// Listen opens the public listener again at the same address.
	Listen func() (net.Listener, error)
	IDs    *atomic.Uint64  // connection ids, shared by all brokers
	Die    context.Context // ends with the cluster
}

// New starts serving. The listener it returns is for kfake: its address is the
// public one, so that kfake's metadata names the front.
func New(cfg Config) (*Broker, net.Listener) {
	b := &Broker{
		Node: cfg.Node, handler: cfg.Handler, listen: cfg.Listen, pub: cfg.Public,
		back: newBackListener(cfg.Public.Addr()),
		pool: make(chan *internalConn, 16), conns: make(map[*Conn]struct{}), ids: cfg.IDs, die: cfg.Die,
	}
	b.wg.Add(1)
	go b.accept(cfg.Public)
	return b, b.back
}

// Addr is the public address.
func (b *Broker) Addr() string { return b.back.addr.String() }

func (b *Broker) accept(l net.Listener) {
	defer b.wg.Done()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		if b.done || b.pub != l {
			b.mu.Unlock()
			_ = c.Close()
			continue
		}
		b.wg.Add(1)
		b.mu.Unlock()
		go b.serve(l, c)
	}
}

// Stop closes the listener and cuts all client connections, as a broker that
// goes down does; Start listens again. kfake's data stays.
func (b *Broker) Stop() {
	b.mu.Lock()
	if b.pub != nil { // within the lock: whoever finds it gone may listen
		_ = b.pub.Close()
	}
	b.pub = nil
	conns := make([]*Conn, 0, len(b.conns))
	for c := range b.conns {
		conns = append(conns, c)
	}
	b.mu.Unlock()
	for _, c := range conns {
		c.cancel()
	}
	for _, c := range conns {
		<-c.ended
	}
}

// Start undoes Stop; ErrRunning if there is nothing to undo.
func (b *Broker) Start() error {
	b.mu.Lock() // also while it listens, so that of two starts at once one says so
	defer b.mu.Unlock()
	if b.done || b.pub != nil {
		return ErrRunning
	}
	l, err := b.listen()
	if err != nil {
		return err
	}
	b.pub = l
	b.wg.Add(1)
	go b.accept(l)
	return nil
}

// ErrRunning: the node is not stopped.
var ErrRunning = errors.New("the node is not stopped")

// Close ends everything and waits for it. The cluster's Die must have ended.
func (b *Broker) Close() {
	b.mu.Lock()
	b.done = true
	b.mu.Unlock()
	b.Stop()
	b.wg.Wait()
	b.drainPool()
	_ = b.back.Close()
}

// Conns is how many client connections are open.
func (b *Broker) Conns() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.conns)
}

// Conn is one client connection.
type Conn struct {
	ID     uint64
	Node   int32
	Host   string
	client net.Conn
	back   net.Conn
	buf    []byte
	cancel context.CancelFunc
	ended  chan struct{}
}

// Forward gives a request to kfake and its answer back; the answer is valid
// until the next call. Without want there is no answer (acks=0).
func (c *Conn) Forward(raw []byte, want bool) ([]byte, error) {
	if _, err := c.back.Write(raw); err != nil {
		return nil, err
	}
	if !want {
		return nil, nil
	}
	answer, err := frame.Read(c.back, c.buf)
	if err != nil {
		return nil, err
	}
	c.buf = answer
	return answer, nil
}

// readAhead is how many requests of a connection are read before the first is
// answered: enough to notice a hang-up while a long poll waits.
const readAhead = 8

// serve ends with the listener's life: a connection that was accepted before a
// stop is none of the node that starts after it.
func (b *Broker) serve(l net.Listener, client net.Conn) {
	defer b.wg.Done()
	back, err := b.back.dial(client.RemoteAddr())
	if err != nil {
		_ = client.Close()
		return
	}
	host, _, _ := net.SplitHostPort(client.RemoteAddr().String())
	ctx, cancel := context.WithCancel(b.die)
	defer cancel()
	c := &Conn{ID: b.ids.Add(1), Node: b.Node, Host: host, client: client, back: back, cancel: cancel, ended: make(chan struct{})}
	b.mu.Lock()
	if b.pub != l {
		b.mu.Unlock()
		_, _ = client.Close(), back.Close()
		return
	}
	b.conns[c] = struct{}{}
	b.mu.Unlock()

	stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), back.Close() })
	frames := make(chan []byte, readAhead)
	b.wg.Add(1)
	go func() {
		defer b.wg.Done()
		defer close(frames)
		defer cancel()
		for {
			raw, err := frame.Read(client, nil)
			if err != nil {
				return
			}
			select {
			case frames <- raw:
			case <-ctx.Done():
				return
			}
		}
	}()
	for raw := range frames {
		if !b.answer(ctx, c, raw) {
			break
		}
	}
	cancel()
	stop()
	_, _ = client.Close(), back.Close()
	for range frames { // let the reader go
	}
	b.mu.Lock()
	delete(b.conns, c)
	b.mu.Unlock()
	b.handler.ConnClosed(c)
	close(c.ended)
}

func (b *Broker) answer(ctx context.Context, c *Conn, raw []byte) bool {
	q, err := frame.Parse(raw)
	if err != nil {
		return false
	}
	out, err := b.handler.Serve(ctx, c, q)
	if ctx.Err() != nil {
		return false
	}
	if out != nil {
		if _, werr := c.client.Write(out); werr != nil {
			return false
		}
	}
	return err == nil
}
