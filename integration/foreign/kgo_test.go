package foreign

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kgo's classic consume-transform-produce: sessions that abort now and then
// write each input's output once.
func TestKgoTransactSession(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		in, out := w.topic(ctx, t, "in", 2), w.topic(ctx, t, "out", 1)
		group := w.name + ".classic"
		const n = 60
		w.feed(ctx, t, in, n, 2)
		s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(w.seeds...), kgo.TransactionalID(w.name+".session"), kgo.ConsumerGroup(group),
			kgo.ConsumeTopics(in), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		aborted := 0
		for done, round := 0, 0; done < n; round++ {
			fs := s.PollRecords(ctx, 7)
			if err := fs.Err(); err != nil {
				t.Fatal(err)
			}
			if err := s.Begin(); err != nil {
				t.Fatal(err)
			}
			fs.EachRecord(func(r *kgo.Record) {
				s.Produce(ctx, &kgo.Record{Topic: out, Value: fmt.Appendf(nil, "%s of %d", r.Value, r.Partition)}, nil)
			})
			try := kgo.TransactionEndTry(round%3 != 1)
			committed, err := s.End(ctx, try)
			if err != nil || committed != bool(try) {
				t.Fatalf("round %d: committed %v, %v", round, committed, err)
			}
			if committed {
				done += fs.NumRecords()
			} else {
				aborted += fs.NumRecords()
			}
		}
		var want []string
		for i := range n {
			want = append(want, fmt.Sprintf("%d of %d", i, i%2))
		}
		slices.Sort(want)
		got := w.visible(ctx, t, out, kgo.ReadCommitted())
		slices.Sort(got)
		if !slices.Equal(got, want) || aborted == 0 {
			t.Errorf("%d aborted, committed %v", aborted, got)
		}
		offsets, err := w.adm.FetchOffsets(ctx, group)
		if err != nil {
			t.Fatal(err)
		}
		for p := range int32(2) {
			if o, ok := offsets.Lookup(in, p); !ok || o.At != n/2 {
				t.Errorf("partition %d: offset %v", p, o.At)
			}
		}
	})
}

// kgo's marks do what they say, the next poll accepts what has none, and a
// client that closes gives back what it has.
func TestKgoMarks(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		topic := w.topic(ctx, t, "in", 1)
		group := w.configs(ctx, t, "g")
		member := func() *kgo.Client {
			cl, err := kgo.NewClient(kgo.SeedBrokers(w.seeds...), kgo.ShareGroup(group), kgo.ConsumeTopics(topic))
			if err != nil {
				t.Fatal(err)
			}
			return cl
		}
		// deliveries polls until all of these values came, and says how often each was
		// delivered by then.
		deliveries := func(cl *kgo.Client, values ...string) map[string]*kgo.Record {
			t.Helper()
			got := make(map[string]*kgo.Record)
			for len(got) < len(values) {
				fs := cl.PollFetches(ctx)
				if err := fs.Err(); err != nil {
					t.Fatal(err)
				}
				fs.EachRecord(func(r *kgo.Record) { got[string(r.Value)] = r })
			}
			for _, v := range values {
				if got[v] == nil {
					t.Fatalf("records %v, want %v", got, values)
				}
			}
			return got
		}
		flush := func(cl *kgo.Client) {
			t.Helper()
			if err := cl.FlushAcks(ctx); err != nil {
				t.Fatal(err)
			}
		}
		first := member()
		w.feed(ctx, t, topic, 5, 1)
		rs := deliveries(first, "0", "1", "2", "3", "4")
		first.MarkAcks(kgo.AckAccept, rs["0"])
		first.MarkAcks(kgo.AckReject, rs["1"])
		first.MarkAcks(kgo.AckRelease, rs["2"])
		first.MarkAcks(kgo.AckRenew, rs["3"])
		flush(first)
		again := deliveries(first, "2")
		if n := again["2"].DeliveryCount(); n != 2 {
			t.Errorf("what was released is delivered %d times", n)
		}
		first.MarkAcks(kgo.AckAccept, again["2"], rs["3"])
		flush(first) // record 4 was accepted by the poll after its own
		w.feed(ctx, t, topic, 1, 1)
		if last := deliveries(first, "0"); last["0"].Offset != 5 {
			t.Errorf("offset %d came again", last["0"].Offset)
		}
		first.Close()
		second := member()
		defer second.Close()
		if last := deliveries(second, "0"); last["0"].DeliveryCount() != 2 || last["0"].Offset != 5 {
			t.Errorf("what the closed client held is delivered %d times, offset %d", last["0"].DeliveryCount(), last["0"].Offset)
		}
		second.MarkAcks(kgo.AckAccept)
		flush(second)
		w.drained(ctx, t, group, 1)
	})
}

// kadm lists, describes, alters and deletes share groups and their offsets.
func TestKadmShareGroups(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		topic := w.topic(ctx, t, "in", 1)
		group := w.configs(ctx, t, "g")
		w.feed(ctx, t, topic, 5, 1)
		m := w.javaMember(ctx, t, group, topic, nil)
		if got := m.poll(ctx, t); len(got) != 5 {
			t.Errorf("records %+v", got)
		}
		m.commitSync(ctx, t)
		w.drained(ctx, t, group, 1)
		d, err := w.adm.DescribeShareGroups(ctx, group)
		if err != nil || d[group].Err != nil || d[group].GroupState != "Stable" || len(d[group].Members) != 1 {
			t.Fatalf("described %+v, %v", d, err)
		}
		if assigned := d[group].Members[0].Assignment; len(assigned[topic]) != 1 {
			t.Errorf("assigned %v", assigned)
		}
		var to kadm.Offsets
		to.AddOffset(topic, 0, 2, -1)
		if _, err := w.adm.AlterShareGroupOffsets(ctx, group, to); !errors.Is(err, kerr.NonEmptyGroup) {
			t.Errorf("altered beside a member: %v", err)
		}
		m.close(ctx, t)
		altered, err := w.adm.AlterShareGroupOffsets(ctx, group, to)
		if err != nil || altered.Error() != nil {
			t.Fatalf("altered %+v, %v", altered, err)
		}
		lag := func() int64 {
			t.Helper()
			d, err := w.adm.DescribeShareGroupOffsets(ctx, group)
			if err == nil {
				err = d.Error()
			}
			if err != nil {
				t.Fatal(err)
			}
			o, ok := d[group].Offsets[topic][0]
			if !ok {
				return -2
			}
			return o.Lag
		}
		testkit.Eventually(ctx, t, "a lag of 3", func() bool { return lag() == 3 })
		deleted, err := w.adm.DeleteShareGroupOffsets(ctx, group, topic)
		if err != nil || deleted.Error() != nil {
			t.Fatalf("deleted %+v, %v", deleted, err)
		}
		if n := lag(); n != -2 {
			t.Errorf("after the deletion of its offsets a lag of %d", n)
		}
		gone, err := w.adm.DeleteGroups(ctx, group)
		if err != nil || gone.Error() != nil {
			t.Fatalf("deleted %+v, %v", gone, err)
		}
		if groups, err := w.adm.ListGroups(ctx); err != nil || groups[group].Group != "" {
			t.Errorf("after the deletion: %v, %v", groups, err)
		}
	})
}
