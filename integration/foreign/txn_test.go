package foreign

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// javaProducer is a KafkaProducer with a transactional id.
type javaProducer struct{ name, id string }

func (w *world) javaProducer(ctx context.Context, t *testing.T, id string) javaProducer {
	t.Helper()
	p := javaProducer{fmt.Sprintf("%s.producer%d", w.name, worlds.Add(1)), w.name + "." + id}
	do(ctx, t, "producer.open", p.name, map[string]any{"config": map[string]string{
		"bootstrap.servers": w.bootstrap(), "transactional.id": p.id, "transaction.timeout.ms": "30000", "max.block.ms": "20000",
	}})
	do(ctx, t, "producer.init", p.name, nil)
	return p
}

// transaction sends values to partition 0 in a transaction of their own and
// leaves it open.
func (p javaProducer) transaction(ctx context.Context, t *testing.T, topic string, values ...string) {
	t.Helper()
	do(ctx, t, "producer.begin", p.name, nil)
	if got := call[[]int64](ctx, t, "producer.send", p.name, map[string]any{"topic": topic, "partition": 0, "values": values}); len(got) != len(values) {
		t.Errorf("offsets %v of %v", got, values)
	}
}

func (p javaProducer) end(ctx context.Context, t *testing.T, how string) {
	t.Helper()
	do(ctx, t, "producer."+how, p.name, nil)
}

// javaReader is a KafkaConsumer in a group.
type javaReader struct{ name string }

func (w *world) javaReader(ctx context.Context, t *testing.T, group, topic string, config map[string]string) javaReader {
	t.Helper()
	r := javaReader{fmt.Sprintf("%s.reader%d", w.name, worlds.Add(1))}
	all := map[string]string{
		"bootstrap.servers": w.bootstrap(), "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": "false",
		"isolation.level": "read_committed",
	}
	for k, v := range config {
		all[k] = v
	}
	do(ctx, t, "reader.open", r.name, map[string]any{"config": all, "topics": []string{topic}})
	return r
}

func (r javaReader) poll(ctx context.Context, t *testing.T, atLeast int) []string {
	t.Helper()
	return call[[]string](ctx, t, "reader.poll", r.name, map[string]any{"millis": 20000, "atLeast": atLeast})
}

// Java's transactions commit and abort; Java's readers of both group protocols,
// kgo's, and share groups of both isolation levels see what they should.
func TestJavaTransactions(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		topic := w.topic(ctx, t, "out", 1)
		p := w.javaProducer(ctx, t, "tx")
		p.transaction(ctx, t, topic, "a", "b")
		p.end(ctx, t, "commit")
		p.transaction(ctx, t, topic, "lost")
		p.end(ctx, t, "abort")
		p.transaction(ctx, t, topic, "c")
		p.end(ctx, t, "commit")

		committed, all := []string{"a", "b", "c"}, []string{"a", "b", "lost", "c"}
		same(t, "kgo, committed", w.visible(ctx, t, topic, kgo.ReadCommitted()), committed)
		same(t, "kgo, all", w.visible(ctx, t, topic, kgo.ReadUncommitted()), all)
		for _, protocol := range []string{"classic", "consumer"} {
			r := w.javaReader(ctx, t, w.name+"."+protocol, topic, map[string]string{"group.protocol": protocol})
			same(t, protocol+" group, committed", r.poll(ctx, t, 3), committed)
			do(ctx, t, "reader.close", r.name, nil)
		}
		r := w.javaReader(ctx, t, w.name+".uncommitted", topic, map[string]string{"isolation.level": "read_uncommitted"})
		same(t, "all", r.poll(ctx, t, 4), all)
		do(ctx, t, "reader.close", r.name, nil)

		for isolation, want := range map[string][]string{"read_committed": committed, "read_uncommitted": all} {
			group := w.configs(ctx, t, isolation, "share.isolation.level="+isolation)
			m := w.javaMember(ctx, t, group, topic, explicit)
			var got []string
			for len(got) < len(want) {
				ds := m.poll(ctx, t)
				got = append(got, valuesOf(ds)...)
				m.acknowledge(ctx, t, "ACCEPT", ds...)
				m.commitSync(ctx, t)
			}
			same(t, "share group, "+isolation, got, want)
			m.none(ctx, t)
			m.close(ctx, t)
			w.drained(ctx, t, group, 1)
		}
		do(ctx, t, "producer.close", p.name, nil)
	})
}

// A second producer of the same id fences the first one, whose transaction
// aborts.
func TestJavaFencing(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		topic := w.topic(ctx, t, "out", 1)
		first := w.javaProducer(ctx, t, "tx")
		first.transaction(ctx, t, topic, "lost")
		second := w.javaProducer(ctx, t, "tx")
		err := shared.java.do(ctx, "producer.commit", first.name, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "ProducerFencedException") {
			t.Errorf("the fenced one commits: %v", err)
		}
		second.transaction(ctx, t, topic, "a")
		second.end(ctx, t, "commit")
		same(t, "committed", w.visible(ctx, t, topic, kgo.ReadCommitted()), []string{"a"})
		for _, p := range []javaProducer{first, second} {
			do(ctx, t, "producer.close", p.name, nil)
		}
	})
}

// Consume-transform-produce as Java does it, with offsets in the transaction:
// an abort takes them back, a commit moves the group on.
func TestJavaOffsetsInTransactions(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		for _, protocol := range []string{"classic", "consumer"} {
			in, out := w.topic(ctx, t, protocol+".in", 1), w.topic(ctx, t, protocol+".out", 1)
			w.feed(ctx, t, in, 3, 1)
			group := w.name + "." + protocol
			p := w.javaProducer(ctx, t, protocol)
			committed := func() int64 {
				t.Helper()
				offsets, err := w.adm.FetchOffsets(ctx, group)
				if err != nil {
					t.Fatal(err)
				}
				o, ok := offsets.Lookup(in, 0)
				if !ok {
					return -1
				}
				return o.At
			}
			for i, how := range []string{"abort", "commit"} {
				r := w.javaReader(ctx, t, group, in, map[string]string{"group.protocol": protocol})
				got := r.poll(ctx, t, 3)
				same(t, fmt.Sprintf("%s group, round %d", protocol, i), got, []string{"0", "1", "2"})
				var outs []string
				for _, v := range got {
					outs = append(outs, how+" "+v)
				}
				p.transaction(ctx, t, out, outs...)
				do(ctx, t, "producer.offsets", p.name, map[string]any{"of": r.name})
				p.end(ctx, t, how)
				do(ctx, t, "reader.close", r.name, nil)
				if got, want := committed(), []int64{-1, 3}[i]; got != want {
					t.Errorf("%s group after %s: offset %d, want %d", protocol, how, got, want)
				}
			}
			same(t, "outputs", w.visible(ctx, t, out, kgo.ReadCommitted()), []string{"commit 0", "commit 1", "commit 2"})
			w.feed(ctx, t, in, 1, 1)
			r := w.javaReader(ctx, t, group, in, map[string]string{"group.protocol": protocol})
			same(t, protocol+" group, afterwards", r.poll(ctx, t, 1), []string{"0"})
			do(ctx, t, "reader.close", r.name, nil)
			do(ctx, t, "producer.close", p.name, nil)
		}
	})
}

// An open transaction is seen by kafka-transactions, and ended by it.
func TestTransactionTools(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := testkit.Deadline(t, limit)
		topic := w.topic(ctx, t, "out", 1)
		p := w.javaProducer(ctx, t, "tx")
		state := func() []string {
			t.Helper()
			return cells(table(w.ran(ctx, t, txnTool, "", "list")), "TransactionalId", p.id, "TransactionState")
		}
		same(t, "before", state(), []string{"Empty"})
		p.transaction(ctx, t, topic, "lost")
		same(t, "under way", state(), []string{"Ongoing"})
		described := table(w.ran(ctx, t, txnTool, "", "describe", "--transactional-id", p.id))
		same(t, "described", cells(described, "TransactionalId", p.id, "TransactionTimeoutMs"), []string{"30000"})
		same(t, "partitions", cells(described, "TransactionalId", p.id, "TopicPartitions"), []string{topic + "-0"})
		producers := table(w.ran(ctx, t, txnTool, "", "describe-producers", "--topic", topic, "--partition", "0"))
		if len(producers) != 1 || producers[0]["CurrentTransactionStartOffset"] != "0" {
			t.Errorf("producers %v", producers)
		}
		leader := "0"
		if w.real {
			leader = "1"
		}
		hanging := w.ran(ctx, t, txnTool, "", "find-hanging", "--broker-id", leader)
		if strings.Contains(hanging, topic) {
			t.Errorf("a transaction that its coordinator knows hangs:\n%s", hanging)
		}
		w.ran(ctx, t, txnTool, "", "forceTerminateTransaction", "--transactionalId", p.id)
		same(t, "terminated", state(), []string{"Empty"})
		if err := shared.java.do(ctx, "producer.commit", p.name, nil, nil); err == nil || !strings.Contains(err.Error(), "ProducerFencedException") {
			t.Errorf("commit of the terminated transaction: %v", err)
		}

		// The abort of one partition is a marker in its log, of which the coordinator
		// knows nothing: the commit goes well, and has nothing.
		hangs := w.javaProducer(ctx, t, "hangs")
		do(ctx, t, "producer.begin", hangs.name, nil)
		at := call[[]int64](ctx, t, "producer.send", hangs.name, map[string]any{"topic": topic, "partition": 0, "values": []string{"lost too"}})
		w.ran(ctx, t, txnTool, "", "abort", "--topic", topic, "--partition", "0", "--start-offset", fmt.Sprint(at[0]))
		hangs.end(ctx, t, "commit")
		same(t, "committed", w.visible(ctx, t, topic, kgo.ReadCommitted()), nil)
		same(t, "written", w.visible(ctx, t, topic, kgo.ReadUncommitted()), []string{"lost", "lost too"})
		for _, name := range []string{p.name, hangs.name} {
			do(ctx, t, "producer.close", name, nil)
		}
	})
}
