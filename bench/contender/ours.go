package contender

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ours is the share consumer of this module.
func ours(ctx context.Context, j Job, w *watch) (err error) {
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(strings.Split(j.Seeds, ",")...)), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer cl.Close()
	answers := newTally()
	opts := []shareconsumer.Opt{shareconsumer.Topics(j.Topic), shareconsumer.OnAcknowledged(answers.add)}
	if j.Fetch > 0 {
		opts = append(opts, shareconsumer.MaxPollRecords(j.Fetch))
	}
	c, err := shareconsumer.New(cl, j.Group, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for w.report.Records < j.Records {
		b, err := c.Poll(ctx)
		if err != nil {
			return err
		}
		var bytes int64
		records := b.Records()
		for _, r := range records {
			bytes += int64(len(r.Value))
		}
		w.polled(len(records), bytes)
		b.AcceptRest()
		if err := b.CommitAsync(); err != nil {
			return err
		}
	}
	if err := answers.wait(ctx, w.report.Records); err != nil {
		return err
	}
	w.acknowledged()
	return nil
}

// Accepted is how many records a result says are accepted.
func Accepted(r shareconsumer.AckResult) (records int) {
	if r.Err != nil {
		return 0
	}
	for _, b := range r.Batches {
		for run := range b.Runs() {
			if run.Type == acks.Accept {
				records += int(run.Last - run.First + 1)
			}
		}
	}
	return records
}

// tally counts records whose acknowledgement was answered.
type tally struct {
	mu      sync.Mutex
	records int
	err     error
	changed chan struct{} // holds one signal
}

func newTally() *tally { return &tally{changed: make(chan struct{}, 1)} }

func (t *tally) add(r shareconsumer.AckResult) {
	t.mu.Lock()
	t.records += Accepted(r)
	t.err = errors.Join(t.err, r.Err)
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// wait waits until so many are acknowledged, or one of them cannot be.
func (t *tally) wait(ctx context.Context, records int) error {
	for {
		t.mu.Lock()
		got, err := t.records, t.err
		t.mu.Unlock()
		if err != nil || got >= records {
			return err
		}
		select {
		case <-t.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
