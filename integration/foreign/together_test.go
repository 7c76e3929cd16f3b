package foreign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// taken collects which member acknowledged what, in which delivery.
type taken struct {
	mu sync.Mutex
	by map[string]map[string]int // member, then topic/partition/offset
}

func (k *taken) add(member, topic string, partition int32, offset int64, delivery int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by[member] == nil {
		k.by[member] = make(map[string]int)
	}
	k.by[member][fmt.Sprintf("%s/%d/%d", topic, partition, offset)] = delivery
}

func (k *taken) count() (members, records int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, rs := range k.by {
		records += len(rs)
	}
	return len(k.by), records
}

// peer is a member that consumes on its own until it is stopped; then it has
// told all that it acknowledged.
type peer struct {
	name string
	stop func() error
}

// javaPeer is a KafkaShareConsumer. It tells what it has done when it stops.
func (w *world) javaPeer(ctx context.Context, t *testing.T, k *taken, group, topic, mode string) peer {
	t.Helper()
	m := w.javaMember(ctx, t, group, topic, map[string]string{"share.acknowledgement.mode": mode, "max.poll.records": "10"})
	do(ctx, t, "share.start", m.name, map[string]any{"explicit": mode == "explicit"})
	return peer{"Java " + mode, func() error {
		var ds []delivery
		if err := shared.java.do(ctx, "share.stop", m.name, nil, &ds); err != nil {
			return err
		}
		for _, d := range ds {
			k.add("Java "+mode, d.Topic, d.Partition, d.Offset, d.Deliveries)
		}
		return shared.java.do(ctx, "share.close", m.name, nil, nil)
	}}
}

// goPeer runs a member in a goroutine until its context ends.
func goPeer(ctx context.Context, name string, loop func(context.Context) error) peer {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- loop(ctx) }()
	return peer{name, func() error {
		cancel()
		return <-ended
	}}
}

// kgoPeer is kgo's share consumer.
func (w *world) kgoPeer(ctx context.Context, t *testing.T, k *taken, group, topic string) peer {
	t.Helper()
	var mu sync.Mutex
	var refused error
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.seeds...), kgo.ShareGroup(group), kgo.ConsumeTopics(topic), kgo.ShareMaxRecords(10),
		kgo.ShareAckCallback(func(_ *kgo.Client, rs kgo.ShareAckResults) {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range rs {
				refused = errors.Join(refused, r.Err)
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	return goPeer(ctx, "kgo", func(ctx context.Context) error {
		defer cl.Close()
		for {
			rs := cl.PollFetches(ctx).Records()
			if ctx.Err() != nil {
				return nil
			}
			cl.MarkAcks(kgo.AckAccept)
			if err := cl.FlushAcks(context.WithoutCancel(ctx)); err != nil {
				return err
			}
			mu.Lock()
			err := refused
			mu.Unlock()
			if err != nil {
				return err
			}
			for _, r := range rs {
				k.add("kgo", r.Topic, r.Partition, r.Offset, int(r.DeliveryCount()))
			}
		}
	})
}

// ours is a shareconsumer of this module; with a transactional id it produces
// a record for each it takes, and acknowledges in the transaction.
func (w *world) ours(ctx context.Context, t *testing.T, k *taken, group, topic, id, out string) peer {
	t.Helper()
	name, mode := "ours", shareconsumer.Explicit
	if id != "" {
		name, mode = "ours in transactions", shareconsumer.Transactional
	}
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(w.seeds...)), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := shareconsumer.New(cl, group, shareconsumer.Topics(topic), shareconsumer.MaxPollRecords(10), shareconsumer.AcknowledgementMode(mode))
	if err != nil {
		t.Fatal(err)
	}
	commit := func(ctx context.Context, b *shareconsumer.Batch) error {
		b.AcceptRest()
		return b.CommitSync(ctx)
	}
	end := c.Close
	if id != "" {
		p, err := producer.New(cl, id)
		if err != nil {
			t.Fatal(err)
		}
		end = func() error { return errors.Join(c.Close(), p.Close()) }
		commit = func(ctx context.Context, b *shareconsumer.Batch) error {
			var outs []*kgo.Record
			for _, r := range b.Records() {
				outs = append(outs, &kgo.Record{Topic: out, Value: r.Value})
			}
			b.AcceptRest()
			outcome, err := p.InTransaction(ctx, b, func(ctx context.Context, tx *producer.Txn) error { return tx.Produce(ctx, outs...) })
			if err == nil && outcome != sharetxn.Committed {
				err = fmt.Errorf("outcome %v", outcome)
			}
			return err
		}
	}
	return goPeer(ctx, name, func(ctx context.Context) (err error) {
		defer cl.Close()
		defer func() { err = errors.Join(err, end()) }()
		for {
			b, err := c.Poll(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			rs := b.Records()
			if err := commit(context.WithoutCancel(ctx), b); err != nil {
				return err
			}
			for _, r := range rs {
				k.add(name, r.Topic, r.Partition, r.Offset, int(r.DeliveryCount()))
			}
		}
	})
}

// Java's members, kgo's and ours share the work of one group: every record is
// acknowledged by one of them, in its first delivery.
func TestMembersTogether(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		const partitions = 2
		topic, out := w.topic(ctx, t, "in", partitions), w.topic(ctx, t, "out", 1)
		group := w.configs(ctx, t, "g")
		k := &taken{by: make(map[string]map[string]int)}
		peers := []peer{
			w.javaPeer(ctx, t, k, group, topic, "explicit"),
			w.javaPeer(ctx, t, k, group, topic, "implicit"),
			w.kgoPeer(ctx, t, k, group, topic),
			w.ours(ctx, t, k, group, topic, "", ""),
		}
		if w.staging {
			peers = append(peers, w.ours(ctx, t, k, group, topic, w.name+".tx", out))
		}
		// While members come, partitions change hands; records come afterwards.
		testkit.Eventually(ctx, t, "all members have partitions", func() bool {
			d, err := w.adm.DescribeShareGroups(ctx, group)
			if err != nil || len(d[group].Members) != len(peers) {
				return false
			}
			for _, m := range d[group].Members {
				if len(m.Assignment) == 0 || m.MemberEpoch != d[group].GroupEpoch {
					return false
				}
			}
			return true
		})
		// Java's members tell only when they stop, so the rounds end when the others
		// have some and there was enough for all.
		fed := 0
		for members := 0; members < len(peers)-2 || fed < 1000; members, _ = k.count() {
			w.feed(ctx, t, topic, 10, partitions)
			fed += 10
		}
		w.drained(ctx, t, group, partitions)
		for _, p := range peers {
			if err := p.stop(); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
		w.drained(ctx, t, group, partitions)
		members, records := k.count()
		owner := make(map[string]string)
		for member, rs := range k.by {
			t.Logf("%s: %d records", member, len(rs))
			for at, delivery := range rs {
				if other, twice := owner[at]; twice || delivery != 1 {
					t.Errorf("%s: delivery %d to %s, and also %q", at, delivery, member, other)
				}
				owner[at] = member
			}
		}
		if members != len(peers) || records != fed {
			t.Errorf("%d members of %d had %d records of %d", members, len(peers), records, fed)
		}
		if n := len(k.by["ours in transactions"]); n != len(w.visible(ctx, t, out, kgo.ReadCommitted())) {
			t.Errorf("%d records were taken in transactions, and the outputs of others committed", n)
		}
	})
}
