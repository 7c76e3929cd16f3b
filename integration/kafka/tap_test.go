package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// echo is a broker that answers each request with its own bytes behind the
// correlation id; closed gets a value for each connection that its client ended.
func echo(t *testing.T) (addr string, closed <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ends := make(chan struct{}, 10)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close(); ends <- struct{}{} }()
				for {
					frame, err := readFrame(conn, 8)
					if err != nil {
						return
					}
					if _, err := conn.Write(framed(slices.Concat(frame[8:12], frame[4:8]))); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), ends
}

func framed(b []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }

// ask sends a request with that key, and gives what comes back after the
// correlation id.
func ask(conn net.Conn, key int16) ([]byte, error) {
	req := []byte{0, byte(key), 0, 3, 0, 0, 0, byte(key)}
	if _, err := conn.Write(framed(req)); err != nil {
		return nil, err
	}
	frame, err := readFrame(conn, 4)
	if err != nil {
		return nil, err
	}
	return frame[8:], nil
}

func dial(ctx context.Context, t *testing.T, tap *Tap, addr string) net.Conn {
	t.Helper()
	conn, err := tap.Dial(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestTap(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	addr, closed := echo(t)
	tap := NewTap()
	defer tap.Close()
	var looked []int16
	tap.Look(func(key, version int16, answer []byte) { looked = append(looked, key, version, int16(len(answer))) })
	tap.Decide(func(key int16) Fate { return map[int16]Fate{8: LoseRequest, 9: LoseAnswer}[key] })

	conn := dial(ctx, t, tap, addr)
	if got, err := ask(conn, 7); err != nil || !slices.Equal(got, []byte{0, 7, 0, 3}) {
		t.Errorf("passed: %v, %v", got, err)
	}
	if got, err := ask(conn, 9); !errors.Is(err, io.EOF) {
		t.Errorf("the answer was to be lost: %v, %v", got, err)
	}
	conn = dial(ctx, t, tap, addr)
	if got, err := ask(conn, 8); !errors.Is(err, io.EOF) {
		t.Errorf("the request was to be lost: %v, %v", got, err)
	}
	for range 2 {
		await(ctx, t, closed)
	}
	if !slices.Equal(looked, []int16{7, 3, 4}) {
		t.Errorf("looked at %v", looked)
	}
	if tap.Seen(7) != 1 || tap.Seen(8) != 1 || tap.Lost(LoseRequest) != 1 || tap.Lost(LoseAnswer) != 1 {
		t.Error("counted wrong")
	}
}

// A connection that is severed is over for the broker, and only for it; others
// go on.
func TestSever(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	addr, closed := echo(t)
	tap := NewTap()
	defer tap.Close()
	cut, whole := dial(ctx, t, tap, addr), dial(ctx, t, tap, addr)
	for key, conn := range map[int16]net.Conn{7: cut, 8: whole} {
		if _, err := ask(conn, key); err != nil {
			t.Fatal(err)
		}
	}
	if n := tap.Sever(7); n != 1 {
		t.Fatalf("severed %d connections", n)
	}
	await(ctx, t, closed)
	if _, err := ask(whole, 8); err != nil {
		t.Errorf("the other connection: %v", err)
	}
	if n := tap.Sever(7); n != 0 {
		t.Errorf("severed %d connections again", n)
	}
	if err := cut.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if got, err := ask(cut, 7); !isTimeout(err) {
		t.Errorf("the client was to wait: %v, %v", got, err)
	}
	_ = cut.Close()
	_ = whole.Close()
	await(ctx, t, closed)
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

func await(ctx context.Context, t *testing.T, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-ctx.Done():
		t.Fatal("the broker's connection did not end")
	}
}
