package broker

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/history"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What transactions write is kept as the logs took it, and the logs read back
// whole: a commit, an abort, and one that is open.
func TestHistory(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Topics: map[string]int32{"out": 1, "in": 1}, History: true})
	feed(ctx, t, c, "in", 2)
	p := producer(t, c, kgo.ProducerBatchCompression(kgo.NoCompression()))
	big := strings.Repeat("a", chunkBytes*3/4) // so that the log is read in pieces
	var writers []txn.Key
	for _, try := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		write(ctx, t, p, big)
		if err := p.ProduceSync(ctx, kgo.StringRecord("b")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		writers = append(writers, key(ctx, t, p))
		if err := p.EndTransaction(ctx, try); err != nil {
			t.Fatal(err)
		}
	}
	write(ctx, t, p, "open")
	writers = append(writers, key(ctx, t, p))

	rs, err := c.Committed(ctx, "out")
	if err != nil || len(rs) != 2 || string(rs[0].Value) != big || string(rs[1].Value) != "b" || rs[1].Offset != 1 {
		t.Errorf("%d records are visible, %v", len(rs), err)
	}
	facts, err := c.Facts(ctx, "g", "out")
	if err != nil {
		t.Fatal(err)
	}
	out := txn.Partition{Topic: "out"}
	at := func(offset int64, k txn.Key) history.Batch {
		return history.Batch{First: offset, Last: offset, Writer: k, Transactional: true}
	}
	marker := func(offset int64, k txn.Key, commit bool) history.Batch {
		k.ProducerEpoch++
		return history.Batch{First: offset, Last: offset, Writer: k, Transactional: true, Control: true, Commit: commit}
	}
	want := history.Log{Bounds: share.Bounds{LastStable: 6, End: 7}, Batches: []history.Batch{
		at(0, writers[0]), at(1, writers[0]), marker(2, writers[0], true),
		at(3, writers[1]), at(4, writers[1]), marker(5, writers[1], false),
		at(6, writers[2]),
	}}
	if got := facts.Logs[out]; !reflect.DeepEqual(got, want) {
		t.Errorf("log\n%+v, want\n%+v", got, want)
	}
	if len(facts.Logs) != 1 {
		t.Errorf("%d logs", len(facts.Logs))
	}
	produced := func(offset int64, k txn.Key) history.Event {
		return history.Produced{Writer: k, Partition: out, First: offset, Last: offset}
	}
	decided := func(k txn.Key, commit, applied bool) history.Event {
		return txn.Event{TransactionalID: "x", Writer: k, Commit: commit, ByProducer: true, Applied: applied, Partitions: []txn.Partition{out}}
	}
	events := []history.Event{
		txn.Initialised{TransactionalID: "x", Key: writers[0]},
		produced(0, writers[0]), produced(1, writers[0]), decided(writers[0], true, false), decided(writers[0], true, true),
		produced(3, writers[1]), produced(4, writers[1]), decided(writers[1], false, false), decided(writers[1], false, true),
		produced(6, writers[2]),
	}
	if !reflect.DeepEqual(facts.Events, events) {
		t.Errorf("events\n%+v, want\n%+v", facts.Events, events)
	}
}

func TestNoHistory(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	if _, err := start(t, Config{}).Facts(ctx, "g"); !errors.Is(err, errNoHistory) {
		t.Errorf("facts of nothing: %v", err)
	}
}
