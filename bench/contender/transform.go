package contender

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// withProcessor copies a topic by a Processor with its defaults but for the
// guarantee and the records of a transaction.
func withProcessor(g processor.Guarantee) func(context.Context, Job, *watch) error {
	return func(ctx context.Context, j Job, w *watch) error {
		running, stop := context.WithCancel(ctx)
		defer stop()
		done := &commits{want: j.Records, watch: w, all: stop}
		cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(strings.Split(j.Seeds, ",")...), kgo.WithHooks(&w.requests)), sharetxn.WithHooks(done),
			sharetxn.Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return err
		}
		defer cl.Close()
		p, err := processor.New(cl, processor.Config{
			Group: j.Group, Topics: []string{j.Topic}, Instance: "bench", Guarantee: g, MaxRecords: j.Txn,
			DeadLetter: processor.DeadLetter{Discard: true},
			Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
				return []*kgo.Record{{Topic: j.Output, Key: in.Key, Value: in.Value}}, nil
			},
		})
		if err != nil {
			return err
		}
		if err := p.Run(running); err != nil {
			return err
		}
		return context.Cause(ctx)
	}
}

// commits tells a watch of what was committed, and calls all with the last. Safe
// for concurrent use.
type commits struct {
	mu    sync.Mutex
	want  int
	watch *watch
	all   func()
}

var _ sharetxn.HookTxn = (*commits)(nil)

// OnTxnStart implements sharetxn.HookTxn.
func (c *commits) OnTxnStart(ctx context.Context, _ sharetxn.TxnStart) context.Context { return ctx }

// OnTxnEnd implements sharetxn.HookTxn. What was aborted is done again.
func (c *commits) OnTxnEnd(_ context.Context, e sharetxn.TxnEnd) {
	if e.Outcome == sharetxn.Committed {
		c.add(e.Records)
	}
}

func (c *commits) add(records int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch.polled(records, 0)
	if c.watch.report.Records >= c.want {
		c.watch.acknowledged()
		c.all()
	}
}

// withKgo copies a topic by what kgo has for it: a share consumer, and as many
// transactional clients, in turn. A poll accepts what the one before gave, when it
// is committed. Whoever dies between the two publishes twice.
func withKgo(ids int) func(context.Context, Job, *watch) error {
	return func(ctx context.Context, j Job, w *watch) error {
		const stock = 500 // what a fetch takes by default
		seeds, counted := kgo.SeedBrokers(strings.Split(j.Seeds, ",")...), kgo.WithHooks(&w.requests)
		in, err := kgo.NewClient(seeds, counted, kgo.ShareGroup(j.Group), kgo.ConsumeTopics(j.Topic), kgo.ShareMaxRecords(int32(max(stock, j.Txn))))
		if err != nil {
			return err
		}
		defer in.Close()
		var out []*kgo.Client
		for n := range ids {
			cl, err := kgo.NewClient(seeds, counted, kgo.TransactionalID(j.Group+"-"+string(rune('a'+n))))
			if err != nil {
				return err
			}
			defer cl.Close()
			out = append(out, cl)
		}
		for n := 0; w.report.Records < j.Records; n++ {
			fs := in.PollRecords(ctx, j.Txn)
			if err := fs.Err(); err != nil {
				return err
			}
			rs := fs.Records()
			if len(rs) == 0 {
				continue
			}
			if err := copyByKgo(ctx, out[n%ids], j.Output, rs); err != nil {
				return err
			}
			w.polled(len(rs), 0)
		}
		w.acknowledged()
		in.MarkAcks(kgo.AckAccept) // what the last poll gave
		if err := in.FlushAcks(ctx); err != nil {
			return err
		}
		in.LeaveGroup()
		return nil
	}
}

func copyByKgo(ctx context.Context, cl *kgo.Client, topic string, rs []*kgo.Record) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	out := make([]*kgo.Record, len(rs))
	for i, r := range rs {
		out[i] = &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value}
	}
	if err := cl.ProduceSync(ctx, out...).FirstErr(); err != nil {
		return err
	}
	return cl.EndTransaction(ctx, kgo.TryCommit)
}
