package foreign

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// configs sets configs of a share group, beside reading from the start, with
// kafka-configs; it gives the group's name.
func (w *world) configs(ctx context.Context, t *testing.T, name string, configs ...string) string {
	t.Helper()
	group := w.name + "." + name
	for _, c := range append(configs, "share.auto.offset.reset=earliest") {
		if p := w.tool(ctx, t, configTool, "", "--alter", "--entity-type", "groups", "--entity-name", group, "--add-config", c); p.Exit != 0 {
			t.Fatalf("%s: %+v", c, p)
		}
	}
	return group
}

// drained waits until the group has nothing left of its topics, as the broker
// tells it; only partitions that it read at all have offsets.
func (w *world) drained(ctx context.Context, t *testing.T, group string, partitions int) {
	t.Helper()
	testkit.Eventually(ctx, t, "lag of group "+group+" is 0", func() bool {
		d, err := w.adm.DescribeShareGroupOffsets(ctx, group)
		if err == nil {
			err = d.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
		done := 0
		for _, ps := range d[group].Offsets {
			for _, p := range ps {
				if p.Lag == 0 {
					done++
				}
			}
		}
		return done == partitions
	})
}

// delivery is a record as a Java member got it.
type delivery struct {
	Topic      string
	Partition  int32
	Offset     int64
	Value      string
	Deliveries int
}

// javaMember is a KafkaShareConsumer.
type javaMember struct{ name string }

func (w *world) javaMember(ctx context.Context, t *testing.T, group, topic string, config map[string]string) javaMember {
	t.Helper()
	m := javaMember{fmt.Sprintf("%s.member%d", w.name, worlds.Add(1))}
	all := map[string]string{"bootstrap.servers": w.bootstrap(), "group.id": group}
	for k, v := range config {
		all[k] = v
	}
	do(ctx, t, "share.open", m.name, map[string]any{"config": all, "topics": []string{topic}})
	return m
}

// poll polls once more and once more until there is a record.
func (m javaMember) poll(ctx context.Context, t *testing.T) []delivery {
	t.Helper()
	ds := call[[]delivery](ctx, t, "share.poll", m.name, map[string]any{"millis": 15000, "atLeast": 1})
	if len(ds) == 0 {
		t.Fatalf("%s: no records", m.name)
	}
	return ds
}

// none polls for a while and must get nothing.
func (m javaMember) none(ctx context.Context, t *testing.T) {
	t.Helper()
	if ds := call[[]delivery](ctx, t, "share.poll", m.name, map[string]any{"millis": 700, "atLeast": 1}); len(ds) > 0 {
		t.Fatalf("%s: records that nobody expects: %+v", m.name, ds)
	}
}

func (m javaMember) acknowledge(ctx context.Context, t *testing.T, kind string, ds ...delivery) {
	t.Helper()
	var acks []map[string]any
	for _, d := range ds {
		acks = append(acks, map[string]any{"topic": d.Topic, "partition": d.Partition, "offset": d.Offset, "type": kind})
	}
	do(ctx, t, "share.acknowledge", m.name, map[string]any{"acks": acks})
}

// commitSync must be answered well for each partition.
func (m javaMember) commitSync(ctx context.Context, t *testing.T) {
	t.Helper()
	for partition, answer := range call[map[string]string](ctx, t, "share.commitSync", m.name, nil) {
		if answer != "" {
			t.Errorf("%s: commitSync of %s: %s", m.name, partition, answer)
		}
	}
}

func (m javaMember) close(ctx context.Context, t *testing.T) {
	t.Helper()
	do(ctx, t, "share.close", m.name, nil)
}

func valuesOf(ds []delivery) (vs []string) {
	for _, d := range ds {
		vs = append(vs, d.Value)
	}
	return vs
}

// Each of Java's verdicts does what it says, by commitSync and by commitAsync.
func TestJavaVerdicts(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		topic := w.topic(ctx, t, "in", 1)
		group := w.configs(ctx, t, "g", "share.record.lock.duration.ms=10000", "share.delivery.count.limit=2")
		w.feed(ctx, t, topic, 6, 1)
		m := w.javaMember(ctx, t, group, topic, explicit)
		ds := m.poll(ctx, t)
		if got := valuesOf(ds); !slices.Equal(got, []string{"0", "1", "2", "3", "4", "5"}) {
			t.Fatalf("records %v", got)
		}
		for _, d := range ds {
			if d.Deliveries != 1 {
				t.Errorf("%+v at the first delivery", d)
			}
		}
		if lock := call[int](ctx, t, "share.lockTimeout", m.name, nil); lock != 10000 {
			t.Errorf("a lock of %d ms", lock)
		}
		m.acknowledge(ctx, t, "ACCEPT", ds[0])
		m.acknowledge(ctx, t, "RELEASE", ds[1])
		m.acknowledge(ctx, t, "REJECT", ds[2])
		m.acknowledge(ctx, t, "RENEW", ds[3])
		m.acknowledge(ctx, t, "ACCEPT", ds[4:]...)
		m.commitSync(ctx, t)
		// What was renewed is still this member's; what was released is anyone's.
		again := make(map[string]int)
		for len(again) < 2 {
			for _, d := range m.poll(ctx, t) {
				again[d.Value] = d.Deliveries
				kind := "ACCEPT"
				if d.Value == "1" {
					kind = "RELEASE" // its last delivery
				}
				m.acknowledge(ctx, t, kind, d)
			}
			do(ctx, t, "share.commitAsync", m.name, nil)
		}
		if want := map[string]int{"3": 1, "1": 2}; !maps.Equal(again, want) {
			t.Errorf("deliveries %v, want %v", again, want)
		}
		m.none(ctx, t)
		told := make(map[int64]int)
		for _, c := range call[[]struct {
			Offsets []int64
			Error   string
		}](ctx, t, "share.callbacks", m.name, nil) {
			if c.Error != "" {
				t.Errorf("acknowledgement of %v: %s", c.Offsets, c.Error)
			}
			for _, o := range c.Offsets {
				told[o]++
			}
		}
		if want := map[int64]int{0: 1, 1: 2, 2: 1, 3: 2, 4: 1, 5: 1}; !maps.Equal(told, want) {
			t.Errorf("acknowledgements told %v, want %v", told, want)
		}
		m.close(ctx, t)
		w.drained(ctx, t, group, 1)
	})
}

// A lock that ends gives the record to another member, and the first one's
// acknowledgement is refused; so does a close without one.
func TestJavaLocks(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		topic := w.topic(ctx, t, "in", 1)
		group := w.configs(ctx, t, "g", "share.record.lock.duration.ms=1000")
		w.feed(ctx, t, topic, 1, 1)
		slow, other := w.javaMember(ctx, t, group, topic, explicit), w.javaMember(ctx, t, group, topic, explicit)
		first := slow.poll(ctx, t)
		second := other.poll(ctx, t)
		if first[0].Deliveries != 1 || second[0].Deliveries != 2 {
			t.Errorf("%+v, then %+v", first, second)
		}
		slow.acknowledge(ctx, t, "ACCEPT", first...)
		answers := call[map[string]string](ctx, t, "share.commitSync", slow.name, nil)
		if got := answers[topic+"/0"]; got != "InvalidRecordStateException" {
			t.Errorf("acknowledged after the lock: %v", answers)
		}
		other.close(ctx, t)
		third := slow.poll(ctx, t)
		if third[0].Deliveries != 3 {
			t.Errorf("after a close: %+v", third)
		}
		slow.acknowledge(ctx, t, "ACCEPT", third...)
		slow.commitSync(ctx, t)
		slow.close(ctx, t)
		w.drained(ctx, t, group, 1)
	})
}

// The next poll accepts what the one before gave, and so does commitSync; close
// gives it back.
func TestJavaImplicit(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		topic := w.topic(ctx, t, "in", 3)
		group := w.configs(ctx, t, "g")
		m := w.javaMember(ctx, t, group, topic, nil)
		w.feed(ctx, t, topic, 30, 3)
		seen := make(map[string]int)
		for len(seen) < 30 {
			for _, d := range m.poll(ctx, t) {
				seen[d.Value]++
			}
		}
		for v, n := range seen {
			if n != 1 {
				t.Errorf("%s was delivered %d times", v, n)
			}
		}
		m.commitSync(ctx, t)
		w.drained(ctx, t, group, 3)
		w.feed(ctx, t, topic, 1, 1)
		if got := m.poll(ctx, t); len(got) != 1 || got[0].Offset != 10 || got[0].Deliveries != 1 {
			t.Errorf("one more: %+v", got)
		}
		m.close(ctx, t)
		late := w.javaMember(ctx, t, group, topic, nil)
		if got := late.poll(ctx, t); len(got) != 1 || got[0].Offset != 10 || got[0].Deliveries != 2 {
			t.Errorf("after the close: %+v", got)
		}
		late.none(ctx, t) // and accepts
		late.close(ctx, t)
		w.drained(ctx, t, group, 3)
	})
}

// In record_limit mode a poll has no more than it asks for, in batch_optimized
// mode whole producer batches.
func TestJavaAcquireModes(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		for mode, want := range map[string]int{"record_limit": 3, "batch_optimized": 10} {
			topic := w.topic(ctx, t, mode, 1)
			group := w.configs(ctx, t, mode)
			w.feed(ctx, t, topic, 10, 1) // one batch
			m := w.javaMember(ctx, t, group, topic, map[string]string{
				"share.acknowledgement.mode": "explicit", "share.acquire.mode": mode, "max.poll.records": "3",
			})
			total := 0
			for total < 10 {
				ds := m.poll(ctx, t)
				if total == 0 && len(ds) != want {
					t.Errorf("%s: %d records in a poll, want %d", mode, len(ds), want)
				}
				total += len(ds)
				m.acknowledge(ctx, t, "ACCEPT", ds...)
				m.commitSync(ctx, t)
			}
			m.close(ctx, t)
			w.drained(ctx, t, group, 1)
		}
	})
}

var explicit = map[string]string{"share.acknowledgement.mode": "explicit"}
