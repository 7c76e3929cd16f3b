package sharetxntest

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
)

// The network in memory fails as sockets do.
func TestNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		l, err := n.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		at := l.Addr().String()
		if _, err := n.Listen("tcp", at); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("listening twice: %v", err)
		}
		other, err := n.Listen("tcp", "127.0.0.1:0")
		if err != nil || other.Addr().String() == at {
			t.Errorf("second port %v, %v", other.Addr(), err)
		}
		for _, bad := range []string{"127.0.0.1", "example.org:9092", "127.0.0.1:kafka"} {
			if _, err := n.DialContext(t.Context(), "tcp", bad); err == nil {
				t.Errorf("dialled %s", bad)
			}
			if _, err := n.Listen("tcp", bad); err == nil {
				t.Errorf("listening on %s", bad)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := n.DialContext(ended, "tcp", at); !errors.Is(err, context.Canceled) {
			t.Errorf("dialling with an ended context: %v", err)
		}

		accepted := make(chan net.Conn, 1)
		go func() {
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
		near, err := n.DialContext(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		far := <-accepted
		if a := near.RemoteAddr().String(); a != at {
			t.Errorf("remote address %s, want %s", a, at)
		}
		go func() { _, _ = far.Write([]byte("x")); _ = far.Close() }()
		if got, err := io.ReadAll(near); string(got) != "x" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		if _, err := near.Write([]byte("y")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("writing to a closed end: %v", err)
		}
		_ = near.Close()
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("reading after Close: %v", err)
		}

		waiting := make(chan error, 1)
		go func() { _, err := n.DialContext(t.Context(), "tcp", at); waiting <- err }()
		synctest.Wait() // nobody accepts it
		_, _ = l.Close(), l.Close()
		if err := <-waiting; !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialling a listener that closes: %v", err)
		}
		if _, err := n.DialContext(t.Context(), "tcp", at); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialling nobody: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accepting after Close: %v", err)
		}
		if again, err := n.Listen("tcp", at); err != nil || again.Addr().String() != at {
			t.Errorf("listening again: %v", err)
		}
	})
}
