package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/fault"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const group = "g"

// world is one run's cluster and processes, and what befell them. Its operations
// are the test goroutine's, those of faults are the brokers'.
type world struct {
	*journal
	t      testing.TB
	kit    *sharetxntest.Cluster
	broker *broker.Cluster
	dial   testkit.DialFunc
	plan   *fault.Plan
	setup  Setup
	moods  moods
	makes  func(value string) []*kgo.Record // outputs, of a handler that does what it should

	members sync.Map // process by member id

	mu       sync.Mutex
	fed      []fed
	faults   []*fault.Planned
	parts    [][2]int32
	current  map[string]*process // the newest of each name
	all      []*process
	attempts []*attempt
	wrong    []string // beside the run's end
	loads    []*load  // of form acknowledger

	identified map[check.Txn]bool // of which it is known whose load they had
}

// fed is a record of the input.
type fed struct {
	value     string
	partition int32
	offset    int64
	times     int // that what is made of it is to be published
}

// newWorld starts the cluster; it is gone when the test t ends.
func newWorld(t testing.TB, s Setup) *world {
	t.Helper()
	brokers := sharetxntest.Profile(s.Profile)
	if s.Guarantee != processor.Staged {
		brokers = sharetxntest.StockKafka44()
	}
	w := &world{
		journal: newJournal(), t: t, setup: s, makes: outputs, plan: fault.New(0), current: make(map[string]*process), identified: make(map[check.Txn]bool),
		kit: sharetxntest.Start(t, sharetxntest.Brokers(s.Brokers), brokers,
			sharetxntest.Topic(topicIn, s.Partitions), sharetxntest.Topic(topicOut, 3), sharetxntest.Topic(topicSide, 2), sharetxntest.Topic(topicDead, 1),
			sharetxntest.Group(group, sharetxntest.GroupConfig{LockDuration: s.Lock, DeliveryLimit: s.Limit})),
	}
	w.broker = broker.Of(w.kit)
	w.dial = dialer(t, w.kit)
	if s.Guarantee == processor.Ledger {
		if err := ledger.Ensure(t.Context(), w.kit.Connect(t), group, []string{topicIn}); err != nil {
			t.Fatal(err)
		}
	}
	w.broker.SetIntercept(w.plan.Intercept())
	w.broker.TreatMarkers(w.plan.Treat)
	return w
}

// dialer is how the kit's clients connect.
func dialer(t testing.TB, k *sharetxntest.Cluster) testkit.DialFunc {
	t.Helper()
	cl, err := kgo.NewClient(k.Kafka()...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	return cl.OptValue(kgo.Dialer).(testkit.DialFunc)
}

func (w *world) feed(n int, poison bool) {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: topicIn, Value: []byte(value(len(w.fed)+i, poison))}
	}
	w.kit.Feed(w.t, rs...)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range rs {
		w.fed = append(w.fed, fed{string(r.Value), r.Partition, r.Offset, 1})
	}
}

// fault plans one for requests of processes: those that the input is fed with
// name no transaction.
func (w *world) fault(key sharetxntest.Key, when fault.When, a act) *fault.Planned {
	f := fault.Fault{Key: int16(key), When: when, Action: a.does}
	f.Name = fmt.Sprintf("%v: %v", key, a.does)
	if a.before != nil {
		f.Name = fmt.Sprintf("%v: mishap", key)
		f.Before = func() { a.before(w) }
	}
	if key == sharetxntest.ProduceKey || key == sharetxntest.InitProducerIDKey {
		f.Only = append(f.Only, transactional)
	}
	return w.planned(w.plan.Add(f))
}

// deafen keeps from a process what brokers tell it of its records, for so long.
func (w *world) deafen(name string, d time.Duration) {
	p := w.planned(w.plan.Add(fault.Fault{
		Key: int16(sharetxntest.ShareFetchKey), When: fault.When{Times: fault.Always}, Action: fault.Delay(d),
		Only: []fault.Match{fault.Request(func(req *kmsg.ShareFetchRequest) bool {
			if req.MemberID == nil {
				return false
			}
			of, ok := w.members.Load(*req.MemberID)
			return ok && of == name
		})},
	}))
	time.AfterFunc(d, p.Cancel)
}

func transactional(r broker.Request) bool {
	switch m := r.Message().(type) {
	case *kmsg.ProduceRequest:
		return m.TransactionID != nil
	case *kmsg.InitProducerIDRequest:
		return m.TransactionalID != nil
	}
	return false
}

func (w *world) planned(p *fault.Planned) *fault.Planned {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, p)
	return p
}

func (w *world) moveLeader(topic string, partition, to int32) {
	if topic == topicIn {
		for _, s := range w.broker.PartitionStates(group) {
			if s.Partition == partition && s.Pending > 0 && w.broker.Leader(topic, partition) != to {
				w.count(MovedStaged)
			}
		}
	}
	if err := w.broker.MoveLeader(topic, partition, to); err != nil {
		w.note("leader of %s-%d does not move to %d: %v", topic, partition, to, err)
		return
	}
	w.note("leader of %s-%d is %d", topic, partition, to)
}

func (w *world) restart(node int32) {
	if int(node) >= w.setup.Brokers {
		return
	}
	if err := w.broker.RestartNode(node); err != nil {
		w.t.Errorf("broker %d did not restart: %v", node, err)
	}
	w.note("broker %d restarted", node)
}

func (w *world) part(a, b int32, d time.Duration) {
	w.mu.Lock()
	w.parts = append(w.parts, [2]int32{a, b})
	w.mu.Unlock()
	w.broker.Part(a, b)
	w.note("brokers %d and %d are parted for %v", a, b, d)
	time.AfterFunc(d, func() { w.broker.Heal(a, b) })
}

// heal ends all that was ordered and has no end of its own, and sees that
// somebody works.
func (w *world) heal() {
	w.moods.calm()
	w.mu.Lock()
	faults, parts, running := slices.Clone(w.faults), slices.Clone(w.parts), false
	for _, p := range w.all {
		p.gate.Open()
	}
	for _, p := range w.current {
		running = running || p.works()
	}
	w.mu.Unlock()
	for _, f := range faults {
		f.Cancel()
	}
	for _, p := range parts {
		w.broker.Heal(p[0], p[1])
	}
	if !running {
		w.start("p0")
	}
}

// play does the operations at their times.
func (w *world) play(ops []Op) {
	for _, o := range ops {
		lapse.For(context.Background(), time.Until(w.began.Add(o.At)))
		w.note("-- %s", o)
		o.do(w)
	}
}

// left says what the group has not done yet, a line for each partition.
func (w *world) left() (left []string) {
	states := make(map[int32]share.PartitionState)
	for _, s := range w.broker.PartitionStates(group) {
		states[s.Partition] = s
	}
	for p := range w.broker.Partitions(topicIn) {
		bounds, err := w.broker.Bounds(topicIn, p)
		s, read := states[p]
		switch {
		case err != nil:
			left = append(left, fmt.Sprintf("%s-%d: %v", topicIn, p, err))
		case !read && bounds.End > bounds.Start:
			left = append(left, fmt.Sprintf("%s-%d: %d records were never read", topicIn, p, bounds.End-bounds.Start))
		case read && s.Start < bounds.End:
			left = append(left, fmt.Sprintf("%s-%d: start %d of %d, %d available, %d acquired, %d staged", topicIn, p, s.Start, bounds.End, s.Available, s.Acquired, s.Pending))
		}
	}
	return left
}

// Bounds of virtual time.
const (
	drainsWithin = 10 * time.Minute // after everything has healed
	endsWithin   = 2 * time.Minute  // a process after its stop
	lastTimeouts = time.Minute      // what is open at the brokers times out
)

// drain waits until nothing is left, and says what is if that takes too long.
func (w *world) drain() []string {
	for end := time.Now().Add(drainsWithin); ; {
		left := w.left()
		if len(left) == 0 {
			w.broker.Note(check.Drained{})
		}
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
		lapse.For(context.Background(), 200*time.Millisecond)
	}
}

// stopAll ends what runs and tells who did not in time.
func (w *world) stopAll() (late []string) {
	for _, p := range w.all {
		p.stop()
	}
	for _, p := range w.all {
		select {
		case <-p.done:
		case <-time.After(endsWithin):
			late = append(late, p.name)
			p.kill()
			<-p.done
		}
	}
	return late
}
