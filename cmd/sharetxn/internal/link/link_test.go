package link

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// far is a server that tells what arrives and sends what it is told.
type far struct {
	net.Listener
	conns chan net.Conn
}

func serve(t *testing.T) *far {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &far{l, make(chan net.Conn, 10)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.conns <- c
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return f
}

func dial(ctx context.Context, t *testing.T, l *Link, f *far) (near, other net.Conn) {
	t.Helper()
	near, err := l.DialContext(ctx, "tcp", f.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other = <-f.conns
	t.Cleanup(func() { _, _ = near.Close(), other.Close() })
	return near, other
}

// read tells what a connection reads, once.
func read(c net.Conn, n int) <-chan string {
	got := make(chan string, 1)
	go func() {
		b := make([]byte, n)
		if _, err := io.ReadFull(c, b); err != nil {
			got <- "error: " + err.Error()
			return
		}
		got <- string(b)
	}()
	return got
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := c.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
}

// While a link is held nothing passes in either direction and no dial ends;
// afterwards all of it comes, in order. The neighbour's link is not touched.
func TestHold(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	f := serve(t)
	var paused, neighbour Link
	near, other := dial(ctx, t, &paused, f)
	beside, otherBeside := dial(ctx, t, &neighbour, f)

	paused.Hold()
	paused.Hold() // once more changes nothing
	arrives, comes := read(other, 2), read(near, 1)
	wrote, dialled := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := near.Write([]byte("ab"))
		wrote <- err
	}()
	go func() {
		c, err := paused.DialContext(ctx, "tcp", f.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		dialled <- err
	}()
	write(t, other, "x")
	write(t, beside, "b")
	if got := <-read(otherBeside, 1); got != "b" {
		t.Fatalf("the neighbour's write arrived as %q", got)
	}
	select {
	case got := <-arrives:
		t.Fatalf("%q left a held link", got)
	case got := <-comes:
		t.Fatalf("%q arrived through a held link", got)
	case err := <-dialled:
		t.Fatalf("a dial ended through a held link: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	paused.Resume()
	if got := <-arrives; got != "ab" {
		t.Errorf("arrived %q", got)
	}
	if got := <-comes; got != "x" {
		t.Errorf("came %q", got)
	}
	if err := errors.Join(<-wrote, <-dialled); err != nil {
		t.Error(err)
	}
}

// A dial and a write that wait end with their context and their connection.
func TestHoldEnds(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	f := serve(t)
	var l Link
	near, _ := dial(ctx, t, &l, f)
	l.Hold()
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := l.DialContext(ended, "tcp", f.Addr().String()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial: %v", err)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := near.Write([]byte("a"))
		wrote <- err
	}()
	_ = near.Close()
	if err := <-wrote; !errors.Is(err, net.ErrClosed) {
		t.Errorf("write: %v", err)
	}
}

// A link that is cut ends its connections, held or not, and refuses new ones as
// a host without the process would.
func TestCut(t *testing.T) {
	for _, held := range []bool{false, true} {
		ctx := testkit.Deadline(t, 20*time.Second)
		f := serve(t)
		var l, neighbour Link
		near, other := dial(ctx, t, &l, f)
		beside, otherBeside := dial(ctx, t, &neighbour, f)
		if held {
			l.Hold()
		}
		comes := read(near, 1)
		l.Cut()
		l.Cut()
		if _, err := other.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("held %v: the other end reads %v", held, err)
		}
		if got := <-comes; got == "x" {
			t.Errorf("held %v: read %q", held, got)
		}
		if _, err := near.Write([]byte("a")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("held %v: write %v", held, err)
		}
		if _, err := l.DialContext(ctx, "tcp", f.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("held %v: dial %v", held, err)
		}
		l.Resume()
		write(t, beside, "b")
		if got := <-read(otherBeside, 1); got != "b" {
			t.Errorf("held %v: the neighbour's write arrived as %q", held, got)
		}
	}
}
