package processor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// life is one life of a process: all it has are its connections, which end with
// it.
type life struct {
	dialer func(context.Context, string, string) (net.Conn, error)
	end    context.CancelFunc
	ended  context.Context

	mu    sync.Mutex
	conns []net.Conn
}

func (l *life) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended.Err() != nil {
		return nil, errors.New("the process is dead")
	}
	c, err := l.dialer(ctx, network, address)
	if err == nil {
		l.conns = append(l.conns, c)
	}
	return c, err
}

func (l *life) die() {
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// live runs a processor that dies when its handler says so, life after life,
// until one does not.
func (w *world) live(t *testing.T, cfg processor.Config, handle func(*life, context.Context, *processor.Record) ([]*kgo.Record, error)) (deaths int) {
	t.Helper()
	w.harmed = true
	drained := make(chan struct{})
	go func() { defer close(drained); w.WaitDrained(t, "g") }()
	for ; deaths < 50; deaths++ {
		ended, end := context.WithCancel(t.Context())
		l := &life{dialer: w.dialer(t), ended: ended, end: end}
		cl, err := sharetxn.Connect(sharetxn.Kafka(append(w.Kafka(), kgo.Dialer(l.dial))...), sharetxn.WithProfile(w.profile), sharetxn.WithHooks(w.seen),
			sharetxn.Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		mine := cfg
		mine.Handler = w.seen.handler(func(ctx context.Context, in *processor.Record) ([]*kgo.Record, error) { return handle(l, ctx, in) })
		mine.Group, mine.Topics, mine.Instance, mine.DeadLetter.Topic = "g", []string{"in"}, "here", "dead"
		mine.Guarantee = w.guarantee
		p, err := processor.New(cl, mine)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- p.Run(context.WithoutCancel(t.Context())) }()
		alive := true
		select {
		case <-drained:
		case <-l.ended.Done():
			alive = false
		}
		l.end()
		hard, cancel := context.WithCancel(context.Background())
		if !alive {
			cancel()
		}
		_ = p.Stop(hard)
		cancel()
		<-done
		cl.Close()
		if alive {
			return deaths
		}
	}
	t.Fatal("it dies for ever")
	return deaths
}

// A record that ends the process in every delivery ends as a dead letter, and
// takes none of its neighbours with it.
func TestDeadlyRecord(t *testing.T) {
	for name, deadly := range map[string][]string{"in the middle": {"123"}, "first": {"0"}, "last": {"499"}} {
		t.Run(name, func(t *testing.T) {
			inAll(t, func(t *testing.T, on setting) {
				w := start(t, on)
				w.feed(t, 500)
				deaths := w.live(t, processor.Config{Concurrency: 4}, func(l *life, ctx context.Context, in *processor.Record) ([]*kgo.Record, error) {
					if slices.Contains(deadly, string(in.Value)) {
						l.die()
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return copyOf(in), nil
				})
				w.want(t, 500, deadly...)
				w.seen.healthy(t, 4, deadly...)
				if deaths != 4 {
					t.Errorf("%d deaths in the 4 deliveries that it is handled in", deaths)
				}
				if reason := header(w.Committed(t, "dead")[0], processor.HeaderReason); !strings.Contains(reason, "the process died") {
					t.Errorf("the dead letter says %q", reason)
				}
			})
		})
	}
}

// Several deadly records at a time can take neighbours to the dead letter with
// them; none is lost.
func TestDeadlyRecords(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 500)
		deadly := []string{"50", "300"}
		w.live(t, processor.Config{}, func(l *life, ctx context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if slices.Contains(deadly, string(in.Value)) {
				l.die()
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return copyOf(in), nil
		})
		out, dead := w.values(t, "out"), w.values(t, "dead")
		for i := range 500 {
			if v := fmt.Sprint(i); out[v]+dead[v] != 1 && !(w.concedes() && out[v]+dead[v] > 1) || slices.Contains(deadly, v) && dead[v] != 1 {
				t.Errorf("record %s: %d outputs and %d dead letters", v, out[v], dead[v])
			}
		}
		if len(out) < 250 {
			t.Errorf("only %d of 498 healthy records came through", len(out))
		}
		w.audit(t, "out", "dead")
	})
}

// Deliveries that ended by no record's fault cost time, and no dead letter.
func TestCrashesOfNoRecordsFault(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 200)
		var mu sync.Mutex
		calls, crashes := 0, 0
		w.live(t, processor.Config{MaxRecords: 50}, func(l *life, ctx context.Context, in *processor.Record) ([]*kgo.Record, error) {
			mu.Lock()
			calls++
			crash := crashes < 3 && calls%30 == 0
			if crash {
				crashes++
			}
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			if crash {
				l.die()
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return copyOf(in), nil
		})
		w.want(t, 200)
	})
}
