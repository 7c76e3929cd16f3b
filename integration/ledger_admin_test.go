package integration

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A ledger's life as its operators see it: made, checked, looked at, moved from,
// moved to, reset, truncated, widened.
func TestLedgerAdministration(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 3*time.Minute)
	w := open(t, k)
	in := w.topic(ctx, t, "in", 2)
	group := w.name
	fatal := func(want ...string) {
		t.Helper()
		problems, err := ledger.Check(ctx, w.cl, group, []string{in})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range problems {
			if p.Fatal {
				got = append(got, p.Rule)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("fatal: %v, want %v: %+v", got, want, problems)
		}
	}
	fatal("ledger-topic")
	for range 2 {
		if err := ledger.Ensure(ctx, w.cl, group, []string{in}); err != nil {
			t.Fatal(err)
		}
	}
	fatal()
	if err := groupconfig.Set(ctx, w.cl, group, groupconfig.AutoOffsetReset("earliest"), groupconfig.IsolationLevel(groupconfig.ReadCommitted)); err != nil {
		t.Fatal(err)
	}
	w.feed(ctx, t, in, 10, 1)
	w.ledgerEntry(ctx, t, group, in, entry.Range{First: 0, Last: 1}, entry.Range{First: 4, Last: 4})

	status := func() ledger.Status {
		t.Helper()
		s, err := ledger.ReadStatus(ctx, w.cl, group)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := status(); s.Generation != 1 || s.Guarantee != ledger.Ledger || s.Problem != "" || s.Entries != 1 || s.AboveStart != 1 || s.Open != 0 || s.Records != 4 || s.Bytes <= 0 || s.Oldest.IsZero() {
		t.Errorf("with one entry: %+v", s)
	}
	if deleted, err := ledger.Truncate(ctx, w.cl, group); err != nil || deleted != 0 {
		t.Errorf("deleted %d of what is needed, %v", deleted, err)
	}

	moved, err := ledger.Move(ctx, w.cl, group, ledger.Staged)
	if want := (ledger.Moved{From: ledger.Ledger, To: ledger.Staged, Accepted: 3, Released: 7}); err != nil || !reflect.DeepEqual(moved, want) {
		t.Errorf("moved %+v, %v, want %+v", moved, err, want)
	}
	fatal("guarantee")
	if moved, err = ledger.Move(ctx, w.cl, group, ledger.Ledger); err != nil || moved.From != ledger.Staged {
		t.Errorf("moved back %+v, %v", moved, err)
	}
	lag := func() int64 {
		t.Helper()
		described, err := w.adm.DescribeShareGroupOffsets(ctx, group)
		if err != nil {
			t.Fatal(err)
		}
		return described[group].Offsets[in][0].Lag
	}
	if got := lag(); got != 7 {
		t.Errorf("lag %d after the move, want 7", got)
	}

	if err := ledger.Reset(ctx, w.cl, group, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if got := lag(); got != 10 {
		t.Errorf("lag %d after the reset, want 10", got)
	}
	if s := status(); s.Generation != 4 || s.Guarantee != ledger.Ledger || s.Problem != "" || s.Entries != 0 {
		t.Errorf("after the reset: %+v", s)
	}
	before := status().Records
	if deleted, err := ledger.Truncate(ctx, w.cl, group); err != nil || deleted < 4 || status().Records != before-deleted+2 {
		t.Errorf("deleted %d of %d, left %d, %v", deleted, before, status().Records, err)
	}
	fatal()

	if _, err := w.adm.UpdatePartitions(ctx, 3, in); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(ctx, t, "the source is wider", func() bool {
		listed, err := w.adm.ListTopics(ctx, in)
		return err == nil && len(listed[in].Partitions) == 3
	})
	fatal("ledger-partitions")
	if err := ledger.Ensure(ctx, w.cl, group, []string{in}); err != nil {
		t.Fatal(err)
	}
	fatal()
	if s := status(); len(s.Partitions) != 3 || s.Partitions[2].Generation != 4 {
		t.Errorf("widened: %+v", s)
	}
}

// ledgersEverywhere: what Ensure returned from, each of three brokers shows, with three
// replicas, and nothing stands against it; three times, since a broker is behind for
// milliseconds only.
func (w *world) ledgersEverywhere(ctx context.Context, t *testing.T) {
	t.Helper()
	source := w.topic(ctx, t, "ledgers", 4)
	for i := range 3 {
		began := time.Now()
		group := fmt.Sprintf("%s.ledger%d", w.name, i)
		if err := ledger.Ensure(ctx, w.cl, group, []string{source}); err != nil {
			t.Fatal(err)
		}
		t.Logf("made after %v", time.Since(began).Round(time.Millisecond))
		for _, seed := range seeds(w.plain) {
			one, err := kgo.NewClient(kgo.SeedBrokers(seed))
			if err != nil {
				t.Fatal(err)
			}
			listed, err := kadm.NewClient(one).ListTopics(ctx, ledger.TopicName(group))
			one.Close()
			got := listed[ledger.TopicName(group)]
			if err != nil || got.Err != nil || len(got.Partitions) != 4 || got.Partitions.NumReplicas() != 3 {
				t.Errorf("%s: %+v, %v", seed, got, err)
			}
		}
		problems, err := ledger.Check(ctx, w.cl, group, []string{source})
		for _, p := range problems {
			if p.Rule != "isolation" && p.Rule != "delivery-limit" { // they are the group's, which sets none
				t.Errorf("%+v", p)
			}
		}
		if err != nil || len(problems) != 2 {
			t.Errorf("%+v, %v", problems, err)
		}
	}
}

// ledgerEntry commits a transaction whose only record says that it does ranges of
// partition 0 of a topic.
func (w *world) ledgerEntry(ctx context.Context, t *testing.T, group, topic string, ranges ...entry.Range) {
	t.Helper()
	p, err := w.cl.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(w.name+"-entry"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	value, err := entry.Entry{Generation: 1, TransactionalID: w.name + "-entry", TopicID: w.topicID(ctx, t, topic), Ranges: ranges}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := p.ProduceSync(ctx, &kgo.Record{Topic: ledger.TopicName(group), Value: value}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
}

func (w *world) topicID(ctx context.Context, t *testing.T, name string) [16]byte {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	resp, err := req.RequestWith(ctx, w.plain)
	if err != nil || len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != 0 {
		t.Fatal(err, resp)
	}
	return resp.Topics[0].TopicID
}
