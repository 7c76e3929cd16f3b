package sharetxntest

import (
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/fault"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Key is a Kafka API key, any of them, or StageKey.
type Key int16

// StageKey is TxnShareAcknowledge, whatever number the profile gives it, where it
// stages: the handshakes by which a broker proves that it speaks it do not count.
// A transaction sends each leader two: one that stages, and a contradiction whose
// refusal proves that it is staged.
const StageKey Key = Key(fault.StageKey)

// ProofKey is TxnShareAcknowledge where it is the handshake by which a broker
// proves that it speaks it, and stages nothing.
const ProofKey Key = StageKey - 1

// Keys that tests of services ask for most.
const (
	ProduceKey          Key = 0
	MetadataKey         Key = 3
	FindCoordinatorKey  Key = 10
	InitProducerIDKey   Key = 22
	EndTxnKey           Key = 26
	HeartbeatKey        Key = 76 // ShareGroupHeartbeat
	ShareFetchKey       Key = 78
	ShareAcknowledgeKey Key = 79
)

// String is Kafka's name of the API.
func (k Key) String() string {
	switch k {
	case StageKey:
		return "TxnShareAcknowledge"
	case ProofKey:
		return "TxnShareAcknowledge's handshake"
	}
	return kmsg.NameForKey(int16(k))
}

// Always is a Fault's Times without an end.
const Always = fault.Always

// Fault is one planned fault: of the requests of Key that arrive from then on,
// the Nth meets with Action.
type Fault struct {
	Key   Key
	Nth   int // from 1; 0 means 1
	Times int // how often: the Nth and those after it; 0 means once
	// TransactionalID, where it is set, counts only requests that name it.
	TransactionalID string
	// ClientID, where it is set, counts only requests of clients that have it
	// (kgo.ClientID): not of other services, and not of the test's own calls.
	ClientID string
	// After, where it is set, counts only requests that come when it is closed: what
	// Inject gave for another fault, for example. Until, where it is set, counts none
	// that come when it is closed.
	After, Until <-chan struct{}
	Action       Action
	// MayMiss: that it never fires does not fail the test. A sweep counts Nth up
	// until that happens, and then has seen every request.
	MayMiss bool
}

// Action is what happens to a request, made by the functions below.
type Action struct {
	name   string
	does   fault.Action
	before func(*Cluster) error // nil: nothing
}

func does(a fault.Action) Action { return Action{name: a.String(), does: a} }

// LoseRequest cuts the connection before the broker has seen the request.
func LoseRequest() Action { return does(fault.LoseRequest()) }

// LoseAnswer does what is asked and cuts the connection in place of the answer.
func LoseAnswer() Action { return does(fault.LoseAnswer()) }

// Delay keeps the request, and what comes behind it on its connection, for d.
func Delay(d time.Duration) Action { return does(fault.Delay(d)) }

// Answer answers a Kafka error code and does nothing. The code stands where
// that API has a place for it: with each topic or partition that was asked for,
// or above them all. A request whose answer has no place for a code goes on, and
// the fault has not fired.
func Answer(code int16) Action { return does(fault.Answer(code)) }

// AnswerDone does what is asked and answers a Kafka error code, as Answer does,
// all the same.
func AnswerDone(code int16) Action { return does(fault.AnswerDone(code)) }

// LateAnswer does what is asked at once and answers only d later; what comes
// behind it on its connection waits too.
func LateAnswer(d time.Duration) Action { return does(fault.LateAnswer(d)) }

// TruncateAnswer does what is asked and answers what cannot be decoded: the
// first half.
func TruncateAnswer() Action { return does(fault.TruncateAnswer()) }

// Disconnect does what is asked, answers, and cuts the connection.
func Disconnect() Action { return does(fault.Disconnect()) }

// DeliverTwice does what is asked twice, as if the client had repeated it; the
// client gets the first answer. An InitProducerID that comes twice fences the
// producer that it was for, as in Kafka.
func DeliverTwice() Action { return does(fault.DeliverTwice()) }

// LeaderMoves moves a partition to another broker when the request has arrived,
// before the request is handled.
func LeaderMoves(topic string, partition, to int32) Action {
	return Action{
		name:   fmt.Sprintf("the leader of %s-%d moves to broker %d", topic, partition, to),
		before: func(c *Cluster) error { return c.moveLeader(topic, partition, to) },
	}
}

// BrokerRestarts restarts a broker when the request has arrived, before the
// request is handled. If it is the broker that the request came to, the request
// is lost.
func BrokerRestarts(broker int32) Action {
	return Action{
		name:   fmt.Sprintf("broker %d restarts", broker),
		before: func(c *Cluster) error { return c.restart(broker) },
	}
}

// BrokersPart cuts two brokers off from each other for d, from when the request
// has arrived, before it is handled; see Cluster.Part.
func BrokersPart(a, b int32, d time.Duration) Action {
	return Action{
		name: fmt.Sprintf("brokers %d and %d are parted for %v", a, b, d),
		before: func(c *Cluster) error {
			time.AfterFunc(d, func() { c.broker.Heal(a, b) })
			return c.part(a, b)
		},
	}
}

// Inject plans a fault. The channel is closed when it fires. A fault that has
// not fired when the test ends fails the test, unless it may miss.
func (c *Cluster) Inject(t testing.TB, f Fault) (fired <-chan struct{}) {
	t.Helper()
	switch {
	case f.Action.name == "":
		t.Fatal("sharetxntest.Inject: the Fault has no Action")
	case f.Nth < 0:
		t.Fatalf("sharetxntest.Inject: Nth %d is below 0", f.Nth)
	case f.Times < 0 && f.Times != Always:
		t.Fatalf("sharetxntest.Inject: Times %d is below 0", f.Times)
	case f.Key >= 0 && kmsg.RequestForKey(int16(f.Key)) == nil, f.Key < ProofKey:
		t.Fatalf("sharetxntest.Inject: there is no API key %d", f.Key)
	case f.Key < 0 && c.cfg.stock:
		t.Fatal("sharetxntest.Inject: StockKafka44 has no staging")
	}
	out := fault.Fault{Key: max(int16(f.Key), fault.StageKey), When: fault.When{Nth: max(f.Nth, 1), Times: f.Times}, Action: f.Action.does}
	out.Name = fmt.Sprintf("%v number %d: %s", f.Key, out.Nth, f.Action.name)
	if f.TransactionalID != "" {
		out.Only = append(out.Only, fault.OfTransaction(f.TransactionalID))
	}
	if f.ClientID != "" {
		out.Only = append(out.Only, fault.OfClient(f.ClientID))
	}
	if f.After != nil {
		out.Only = append(out.Only, func(broker.Request) bool { return closed(f.After) })
	}
	if f.Until != nil {
		out.Only = append(out.Only, func(broker.Request) bool { return !closed(f.Until) })
	}
	switch f.Key {
	case StageKey:
		out.Only = append(out.Only, stages)
	case ProofKey:
		out.Only = append(out.Only, func(r broker.Request) bool { return !stages(r) })
	}
	if f.Action.before != nil {
		out.Before = func() {
			if err := f.Action.before(c); err != nil {
				c.log.Error("planned fault failed", "fault", out.Name, "err", err)
			}
		}
	}
	p := c.plan.Add(out)
	if f.MayMiss {
		return p.Fired()
	}
	return mustFire(t, p)
}

// mustFire fails the test at its end if the fault has not fired.
func mustFire(t testing.TB, p *fault.Planned) (fired <-chan struct{}) {
	t.Cleanup(func() {
		if p.Count() > 0 {
			return
		}
		if err := p.Err(); err != nil {
			t.Errorf("sharetxntest: a planned fault could not fire: %v", err)
			return
		}
		t.Errorf("sharetxntest: a planned fault never fired: %v", p)
	})
	return p.Fired()
}

// LoseMarker loses the next marker by which a transaction would end in the log of
// a partition. The transaction completes, the producer is told so, and what it
// wrote to that partition stays undecided, until the end of a later transaction of
// the same producer id there decides it too. Kafka 4.4.0 does so while a partition
// has no leader. The channel is closed when it was lost; a test that ends before
// fails.
func (c *Cluster) LoseMarker(t testing.TB, topic string, partition int32) (lost <-chan struct{}) {
	t.Helper()
	if c.broker.TopicID(topic) == [16]byte{} {
		t.Fatalf("sharetxntest.LoseMarker: there is no topic %q", topic)
	}
	return mustFire(t, c.plan.AddMarker(fault.MarkerFault{
		Name: fmt.Sprintf("the marker of %s-%d is lost", topic, partition),
		Only: func(m txn.Marker) bool {
			return !m.Share && m.Partition == txn.Partition{Topic: topic, Partition: partition}
		},
		Treatment: txn.Treatment{Lose: true},
	}))
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// stages tells a request that stages from a handshake, which names no transaction.
func stages(r broker.Request) bool {
	m, ok := r.Message().(*wire.Request)
	return ok && m.TransactionalID != nil
}

// Requests is how many requests of an API key came since the start, answered or
// not, from the calls of this package too.
func (c *Cluster) Requests(k Key) int {
	if k == StageKey {
		return int(c.staged.Load())
	}
	return c.broker.Traffic(int16(k)).Requests
}

// MoveLeader makes a broker the leader of a partition. The new leader knows of
// share groups only what was written down: acquired records are available again.
func (c *Cluster) MoveLeader(t testing.TB, topic string, partition, to int32) {
	t.Helper()
	if err := c.moveLeader(topic, partition, to); err != nil {
		t.Fatalf("sharetxntest.MoveLeader: %v", err)
	}
}

func (c *Cluster) moveLeader(topic string, partition, to int32) error {
	if to < 0 || int(to) >= c.cfg.brokers {
		return fmt.Errorf("there is no broker %d", to)
	}
	return c.broker.MoveLeader(topic, partition, to)
}

// Restart stops a broker, which cuts its connections and forgets what it held
// in memory, and starts it at the same address. It leads what it led before.
func (c *Cluster) Restart(t testing.TB, broker int32) {
	t.Helper()
	if err := c.restart(broker); err != nil {
		t.Fatalf("sharetxntest.Restart: %v", err)
	}
}

func (c *Cluster) restart(broker int32) error {
	if broker < 0 || int(broker) >= c.cfg.brokers {
		return fmt.Errorf("there is no broker %d", broker)
	}
	return c.broker.RestartNode(broker)
}

// Part cuts two brokers off from each other until Heal: a transaction that one
// coordinates and that touches partitions which the other leads goes neither on
// nor to its end. Clients still reach both.
func (c *Cluster) Part(t testing.TB, a, b int32) {
	t.Helper()
	if err := c.part(a, b); err != nil {
		t.Fatalf("sharetxntest.Part: %v", err)
	}
}

// Heal undoes Part.
func (c *Cluster) Heal(a, b int32) { c.broker.Heal(a, b) }

func (c *Cluster) part(a, b int32) error {
	for _, x := range []int32{a, b} {
		if x < 0 || int(x) >= c.cfg.brokers {
			return fmt.Errorf("there is no broker %d", x)
		}
	}
	if a == b {
		return fmt.Errorf("broker %d cannot be parted from itself", a)
	}
	c.broker.Part(a, b)
	return nil
}
