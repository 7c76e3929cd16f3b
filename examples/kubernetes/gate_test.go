package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
)

// gate is where the handlers of all processes ask.
type gate struct {
	listener  net.Listener
	questions chan *question
	opened    chan struct{} // closed: all is accepted from then on
	over      context.Context
	wg        sync.WaitGroup

	mu         sync.Mutex
	deliveries map[string]int // by value, the highest
}

// question is a handler that waits for an answer.
type question struct {
	pod, value string
	delivery   int
	conn       net.Conn
}

func newGate(t *testing.T) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over, end := context.WithCancel(context.Background())
	g := &gate{listener: l, questions: make(chan *question), opened: make(chan struct{}), over: over, deliveries: make(map[string]int)}
	g.wg.Go(g.accept)
	t.Cleanup(func() {
		end()
		_ = l.Close()
		g.wg.Wait()
	})
	return g
}

func (g *gate) accept() {
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return // closed
		}
		g.wg.Go(func() {
			defer context.AfterFunc(g.over, func() { _ = conn.Close() })()
			g.hear(conn)
		})
	}
}

func (g *gate) hear(conn net.Conn) {
	q := &question{conn: conn}
	if _, err := fmt.Fscanln(bufio.NewReader(conn), &q.pod, &q.value, &q.delivery); err != nil {
		_ = conn.Close()
		return // a process that went away
	}
	g.mu.Lock()
	g.deliveries[q.value] = max(g.deliveries[q.value], q.delivery)
	g.mu.Unlock()
	select {
	case g.questions <- q:
	case <-g.opened:
		q.answer(accept)
	case <-g.over.Done():
		_ = conn.Close()
	}
}

// answer is for the handler that asked; it may be gone.
func (q *question) answer(text string) {
	fmt.Fprintln(q.conn, text)
	_ = q.conn.Close()
}

// next is the next question.
func (g *gate) next(ctx context.Context, t *testing.T) *question {
	t.Helper()
	select {
	case q := <-g.questions:
		t.Cleanup(func() { _ = q.conn.Close() })
		return q
	case <-ctx.Done():
		t.Fatal("no handler asks")
		return nil
	}
}

func (g *gate) open() { close(g.opened) }

// delivered tells how often a record was delivered.
func (g *gate) delivered(value string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.deliveries[value]
}
