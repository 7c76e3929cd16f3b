package sweep

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	records        = 6
	perTransaction = 2
	// within is how long, in virtual time, a life with faults may last.
	within = 15 * time.Minute
)

// client is the id of the service's connections: faults meet nobody else's.
const client = "service"

// live runs a service from its start until all is done and it has stopped,
// while the faults meet it, and judges. It tells which faults fired.
func live(t *testing.T, on setting, faults ...sharetxntest.Fault) (fired []bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := start(t, on)
		var told []<-chan struct{}
		for _, f := range faults {
			told = append(told, w.inject(t, f))
		}
		w.keepRunning(t)
		for _, ch := range told {
			fired = append(fired, closed(ch))
		}
		w.judge(t, len(faults) > 0)
		if t.Failed() {
			t.Logf("%s with %v", on.name, faults)
		}
	})
	return fired
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// world is a virtual cluster with a service's topics.
type world struct {
	*sharetxntest.Cluster
	on     setting
	inputs map[string]*kgo.Record // by value
}

func start(t *testing.T, on setting) *world {
	t.Helper()
	w := &world{sharetxntest.Start(t, on.brokers, sharetxntest.Brokers(2),
		sharetxntest.Topic("in", 2), sharetxntest.Topic("out", 2), sharetxntest.Topic("dead", 1)), on, make(map[string]*kgo.Record)}
	rs := make([]*kgo.Record, records)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: "in", Value: fmt.Append(nil, i)}
		w.inputs[fmt.Sprint(i)] = rs[i]
	}
	w.Feed(t, rs...)
	if ledgered(on) {
		if err := ledger.Ensure(t.Context(), w.Connect(t), "g", []string{"in"}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// inject plans a fault of the service's requests, which may not come to it.
func (w *world) inject(t *testing.T, f sharetxntest.Fault) (fired <-chan struct{}) {
	t.Helper()
	f.ClientID, f.MayMiss = client, true
	return w.Inject(t, f)
}

// keepRunning runs the service until its group is drained, and stops it. It is
// started again, as a supervisor does: some faults end it by what the answer
// means.
func (w *world) keepRunning(t *testing.T) {
	t.Helper()
	began := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var err error
		for range 4 {
			cl := w.Connect(t, sharetxn.Kafka(kgo.ClientID(client)), sharetxn.Logger(slog.New(slog.DiscardHandler)))
			if err = w.on.service(t, cl).Run(ctx); err == nil {
				return
			}
		}
		t.Errorf("ended for the fourth time: %v", err)
	}()
	w.WaitDrained(t, "g")
	stop()
	<-ended
	if d := time.Since(began); d > within {
		t.Errorf("drained and stopped after %v", d)
	}
}

// judge holds what is there at rest against what must be.
func (w *world) judge(t *testing.T, harmed bool) {
	t.Helper()
	w.settled(t)
	out := make(map[string]int)
	for _, r := range w.Committed(t, "out") {
		out[string(r.Value)]++
	}
	for i := range records {
		v := fmt.Sprint(i)
		if n := out[v]; n == 0 || n > 1 && !(harmed && w.on.guarantee == processor.AckAfterCommit) {
			t.Errorf("record %s has %d outputs", v, n)
		}
		delete(out, v)
	}
	if dead := w.Committed(t, "dead"); len(out)+len(dead) > 0 {
		t.Errorf("outputs %v of no record, %d dead letters", out, len(dead))
	}
	guarantee := check.GuaranteeStaged
	switch w.on.guarantee {
	case processor.Ledger:
		guarantee = check.GuaranteeLedger
	case processor.AckAfterCommit:
		guarantee = check.GuaranteeAckAfterCommit
	}
	w.AssertHistory(t, sharetxntest.Expect{
		Group: "g", Guarantee: guarantee, Outputs: []string{"out", "dead"}, DeadLetters: []string{"dead"},
		Source: w.source, Want: func(*kgo.Record) int { return 1 },
	})
}

// source is the input of an output, which has its value.
func (w *world) source(out *kgo.Record) (sharetxntest.Origin, bool) {
	in := w.inputs[string(out.Value)]
	if in == nil {
		return sharetxntest.Origin{}, false
	}
	return sharetxntest.Origin{Topic: in.Topic, Partition: in.Partition, Offset: in.Offset, Nth: 1, Of: 1}, true
}

// settled waits until no transaction is open: that of a service that ended in
// the middle of it has its timeout.
func (w *world) settled(t *testing.T) {
	t.Helper()
	cl, err := kgo.NewClient(w.Kafka()...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	topics := []string{"out", "dead"}
	for end := time.Now().Add(2 * time.Minute); ; {
		stable, err := admin.ListCommittedOffsets(t.Context(), topics...)
		if err != nil {
			t.Fatal(err)
		}
		high, err := admin.ListEndOffsets(t.Context(), topics...)
		if err != nil {
			t.Fatal(err)
		}
		open := ""
		high.Each(func(h kadm.ListedOffset) {
			if s, ok := stable.Lookup(h.Topic, h.Partition); !ok || s.Offset != h.Offset {
				open = fmt.Sprintf("%s-%d: last stable offset %d below %d", h.Topic, h.Partition, s.Offset, h.Offset)
			}
		})
		if open == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("a transaction is open for ever: %s", open)
		}
		<-time.NewTimer(time.Second).C
	}
}
