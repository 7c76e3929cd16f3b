package processor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// manual is a client of the brokers that puts records where they say.
func (w *world) manual(t *testing.T) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(w.Kafka(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// feedTo gives one partition of topic "in" n records with values from from on.
func (w *world) feedTo(t *testing.T, partition int32, from, n int) (values []string) {
	t.Helper()
	cl := w.manual(t)
	defer cl.Close()
	for i := range n {
		values = append(values, fmt.Sprint(from+i))
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Partition: partition, Value: []byte(values[i])}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return values
}

// neighbourGoesOn checks that a record of another partition is done though many of
// one wait.
func (w *world) neighbourGoesOn(t *testing.T, p *processor.Processor, value, waiting int) {
	t.Helper()
	committed := p.Status().Members[0].Committed
	w.feedTo(t, 1, value, 1)
	began := time.Now()
	eventually(t, "the neighbour is done", func() bool { // an open transaction may hide its output
		return w.seen.callsOf(fmt.Sprint(value)) == 1 && p.Status().Members[0].Committed > committed
	})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the neighbour was held up for %v", took)
	}
	if m := p.Status().Members[0]; m.Waiting < waiting {
		t.Errorf("%d wait", m.Waiting)
	}
}

// Records of a partition that the ledger is not wide enough for wait, however many,
// and hold up no other partition; they are done once it is.
func TestNarrowLedger(t *testing.T) {
	const most, many = 20, 300
	for name, deliveries := range map[string]int32{"widened while it runs": 1, "the leader moves": 4, "widened after a stop": 2} {
		t.Run(name, func(t *testing.T) {
			inLedger(t, func(t *testing.T) {
				w := start(t, ledgered, sharetxntest.Group("g", sharetxntest.GroupConfig{DeliveryLimit: 10}))
				p := w.processor(t, once(processor.Config{MaxRecords: most}))
				stop := run(t, p)
				eventually(t, "it works", func() bool { return p.Status().Ready })
				cl := w.manual(t)
				defer cl.Close()
				if _, err := kadm.NewClient(cl).UpdatePartitions(t.Context(), 4, "in"); err != nil {
					t.Fatal(err)
				}
				mine := w.feedTo(t, 3, 0, many)
				waits := func() bool { return p.Status().Members[0].Waiting > most }
				eventually(t, "they wait", waits)
				pass(time.Minute)
				w.neighbourGoesOn(t, p, many, most)
				if name == "the leader moves" {
					before := w.seen.told(sharetxn.LedgerWait, "")
					for node := range int32(3) { // away, and away again
						w.MoveLeader(t, "in", 3, node)
					}
					eventually(t, "what was lost comes and waits again", func() bool { return w.seen.told(sharetxn.LedgerWait, "") > before+most && waits() })
					pass(time.Minute)
				}
				w.neighbourGoesOn(t, p, many+1, most)
				if m := p.Status().Members[0]; m.Waiting >= many {
					t.Errorf("all %d were fetched, though they can but wait", m.Waiting)
				}
				if n := w.seen.callsOf(mine...); n > 0 {
					t.Errorf("%d calls for records that the ledger cannot tell of", n)
				}
				if name == "widened after a stop" {
					began := time.Now()
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took > 5*time.Second {
						t.Errorf("the stop took %v", took)
					}
					w.ensure(t)
					p = w.processor(t, once(processor.Config{MaxRecords: most}))
					stop = run(t, p)
				} else {
					w.ensure(t)
				}
				w.WaitDrained(t, "g")
				if m := p.Status().Members[0]; m.Waiting != 0 {
					t.Errorf("at the end %d wait", m.Waiting)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				w.want(t, many+2)
				w.seen.healthy(t, deliveries)
			})
		})
	}
}

// A big transaction of a process that died holds up no other partition, and its own
// no longer than it lives.
func TestBigPredecessor(t *testing.T) {
	const most = 20
	for _, how := range []string{"commits", "aborts", "dies"} {
		t.Run(how, func(t *testing.T) {
			inLedger(t, func(t *testing.T) {
				w := start(t, ledgered, sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: 5 * time.Second}))
				mine := w.feedTo(t, 0, 0, 2*most)
				r := w.rival(t, time.Minute, mine...)
				p := w.processor(t, once(processor.Config{MaxRecords: most, LockMargin: time.Second}))
				stop := run(t, p)
				eventually(t, "all wait", func() bool { return p.Status().Members[0].Waiting == 2*most })
				pass(15 * time.Second)
				w.neighbourGoesOn(t, p, 2*most, 2*most)
				r.end(how)
				eventually(t, "none waits", func() bool { return p.Status().Members[0].Waiting == 0 })
				w.feedTo(t, 0, 2*most+1, 10) // it is fetched from again
				w.WaitDrained(t, "g")
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				w.want(t, 2*most+11)
				w.seen.healthy(t, 1)
				calls := 2 * most
				if how == "commits" {
					calls = 0
				}
				if n := w.seen.callsOf(mine...); n != calls {
					t.Errorf("%d calls for its records, want %d", n, calls)
				}
			})
		})
	}
}
