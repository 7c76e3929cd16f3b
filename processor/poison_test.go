package processor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

var errBad = errors.New("bad record")

// A bad record among 500 is found, and put to the dead letter with its cause,
// while its neighbours are neither delivered often nor held up.
func TestPoison(t *testing.T) {
	kinds := []struct {
		name  string
		bad   processor.Handler
		cause string
	}{
		{"fails", func(context.Context, *processor.Record) ([]*kgo.Record, error) { return nil, errBad }, "bad record"},
		{"panics", func(context.Context, *processor.Record) ([]*kgo.Record, error) { panic("out of range") }, "out of range"},
		{"never returns", nil, "did not return"},
		{"waits for its context", func(ctx context.Context, _ *processor.Record) ([]*kgo.Record, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, "HandlerTimeout"},
		{"makes what brokers refuse", func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			return []*kgo.Record{{Topic: "out", Value: make([]byte, 3<<20)}}, nil
		}, "larger"},
		{"makes nothing of a topic", func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			return []*kgo.Record{nil}, nil
		}, "nil output"},
		{"writes into the ledger", func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			return append(copyOf(in), &kgo.Record{Topic: "__sharetxn_ledger.g", Value: in.Value}), nil
		}, "ledger topic"},
	}
	setups := []struct {
		name        string
		bad         []string
		members     int
		concurrency int
	}{
		{"one bad", []string{"123"}, 1, 1},
		{"two bad, three members", []string{"7", "444"}, 3, 2},
	}
	for _, k := range kinds {
		for _, s := range setups {
			t.Run(k.name+"/"+s.name, func(t *testing.T) {
				inAll(t, func(t *testing.T, on setting) {
					w := start(t, on)
					bad, never := k.bad, make(chan struct{})
					t.Cleanup(func() { close(never) }) // a bubble ends when all in it do
					if bad == nil {
						bad = func(context.Context, *processor.Record) ([]*kgo.Record, error) { <-never; return nil, nil }
					}
					w.feed(t, 500)
					began := time.Now()
					p := w.processor(t, processor.Config{
						Members: s.members, Concurrency: s.concurrency, HandlerTimeout: time.Second,
						Handler: w.seen.handler(func(ctx context.Context, in *processor.Record) ([]*kgo.Record, error) {
							if slices.Contains(s.bad, string(in.Value)) {
								return bad(ctx, in)
							}
							return copyOf(in), nil
						}),
					})
					w.RunUntilDrained(t, "g", p)
					if took := time.Since(began); took > time.Minute {
						t.Errorf("took %v", took)
					}
					w.want(t, 500, s.bad...)
					w.seen.healthy(t, 3, s.bad...)
					for _, r := range w.Committed(t, "dead") {
						if reason := header(r, processor.HeaderReason); !strings.Contains(reason, k.cause) {
							t.Errorf("dead letter of %s says %q, not %q", r.Value, reason, k.cause)
						}
					}
				})
			})
		}
	}
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}
