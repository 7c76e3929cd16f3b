package processor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

func has(in *processor.Batch, value string) bool {
	for _, r := range in.Records() {
		if string(r.Value) == value {
			return true
		}
	}
	return false
}

func acceptAll(in *processor.Batch) {
	for _, r := range in.Records() {
		in.Accept(r, copyOf(r)...)
	}
}

// A BatchHandler that fails with one record in it is run in halves until that
// record is alone.
func TestBatchHandlerPoison(t *testing.T) {
	never := func(never chan struct{}) { <-never }
	kinds := []struct {
		name  string
		bad   func(in *processor.Batch, hang chan struct{}) error
		cause string
	}{
		{"fails", func(in *processor.Batch, _ chan struct{}) error { return errBad }, "bad record"},
		{"fails after it decided others", func(in *processor.Batch, _ chan struct{}) error {
			for _, r := range in.Records() {
				if string(r.Value) != "123" {
					in.Accept(r, copyOf(r)...)
				}
			}
			return errBad
		}, "bad record"},
		{"fails the record", func(in *processor.Batch, _ chan struct{}) error {
			for _, r := range in.Records() {
				if string(r.Value) == "123" {
					in.Fail(r, errBad)
				}
			}
			in.AcceptRest()
			return nil
		}, "bad record"},
		{"forgets it", func(in *processor.Batch, _ chan struct{}) error {
			for _, r := range in.Records() {
				if string(r.Value) != "123" {
					in.Accept(r, copyOf(r)...)
				}
			}
			return nil
		}, "without a verdict"},
		{"panics", func(*processor.Batch, chan struct{}) error { panic("oops") }, "oops"},
		{"never returns", func(_ *processor.Batch, hang chan struct{}) error { never(hang); return nil }, "did not return"},
		{"decides twice", func(in *processor.Batch, _ chan struct{}) error {
			for _, r := range in.Records() {
				in.Accept(r, copyOf(r)...)
				if string(r.Value) == "123" {
					in.Reject(r, errBad)
				}
			}
			return nil
		}, "decided twice"},
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			inAll(t, func(t *testing.T, on setting) {
				w := start(t, on)
				hang := make(chan struct{})
				t.Cleanup(func() { close(hang) })
				w.feed(t, 500)
				p := w.processor(t, processor.Config{HandlerTimeout: time.Second, BatchHandler: func(_ context.Context, in *processor.Batch) error {
					for _, r := range in.Records() {
						w.seen.note(r)
					}
					if has(in, "123") {
						return k.bad(in, hang)
					}
					acceptAll(in)
					return nil
				}})
				w.RunUntilDrained(t, "g", p)
				if k.name == "fails the record" { // its AcceptRest makes no outputs
					if got := w.values(t, "dead"); len(got) != 1 || got["123"] != 1 {
						t.Errorf("dead letters %v", got)
					}
				} else {
					w.want(t, 500, "123")
				}
				w.seen.healthy(t, 3, "123")
				if reason := header(w.Committed(t, "dead")[0], processor.HeaderReason); !strings.Contains(reason, k.cause) {
					t.Errorf("dead letter says %q, not %q", reason, k.cause)
				}
			})
		})
	}
}

// An aggregate's outputs and all its records commit together.
func TestBatchHandlerAggregate(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 200)
		p := w.processor(t, processor.Config{MaxRecords: 50, BatchHandler: func(_ context.Context, in *processor.Batch) error {
			sum := 0
			for _, r := range in.Records() {
				var n int
				if _, err := fmt.Sscan(string(r.Value), &n); err != nil {
					return err
				}
				if n == 13 {
					in.Reject(r, errors.New("unlucky"))
					continue
				}
				sum += n
			}
			in.AcceptRest(&kgo.Record{Topic: "out", Value: fmt.Append(nil, sum)})
			return nil
		}})
		w.RunUntilDrained(t, "g", p)
		total := 0
		for _, r := range w.Committed(t, "out") {
			var n int
			if _, err := fmt.Sscan(string(r.Value), &n); err != nil {
				t.Fatal(err)
			}
			total += n
		}
		if want := 199*200/2 - 13; total != want {
			t.Errorf("the sums add up to %d, want %d", total, want)
		}
		if got := w.values(t, "dead"); len(got) != 1 || got["13"] != 1 {
			t.Errorf("dead letters %v", got)
		}
	})
}
