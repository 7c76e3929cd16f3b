package sharetxntest

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
)

// What a service goes through, each fault at the request it aims at; all come
// through it with every record once.
func TestFaults(t *testing.T) {
	testkit.Deadline(t, 2*time.Minute)
	for name, action := range map[string]Action{
		"lose request": LoseRequest(), "lose answer": LoseAnswer(), "delay": Delay(3 * time.Second), "disconnect": Disconnect(), "twice": DeliverTwice(),
		"late answer": LateAnswer(3 * time.Second), "half an answer": TruncateAnswer(), "done and refused": AnswerDone(kerr.NotCoordinator.Code),
		"not coordinator": Answer(kerr.NotCoordinator.Code), "leader moves": LeaderMoves("in", 0, 2), "broker restarts": BrokerRestarts(1), "brokers part": BrokersPart(0, 2, 4*time.Second),
	} {
		for _, key := range []Key{ProduceKey, FindCoordinatorKey, InitProducerIDKey, EndTxnKey, HeartbeatKey, ShareFetchKey, ProofKey, StageKey} {
			if key == InitProducerIDKey && name == "twice" {
				continue // fences the producer: TestInitTwice
			}
			if key == ProofKey && name == "half an answer" {
				continue // proves that the broker speaks something else, and ends the service
			}
			t.Run(fmt.Sprintf("%s/%v", name, key), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := Start(t, Brokers(3), Topic("in", 3), Topic("out", 3))
					k.Feed(t, numbers(30)...)
					k.Inject(t, Fault{Key: key, Action: action})
					k.RunUntilDrained(t, "g", copier{cl: k.Connect(t)})
					wantNumbers(t, k, "out", 30)
					k.AssertExactlyOnce(t, "g", "out")
				})
			})
		}
	}
}

// Faults count from when they are planned, and only what they name.
func TestFaultAims(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	synctest.Test(t, func(t *testing.T) {
		k := Start(t, Topic("in", 1), Topic("out", 1))
		k.Feed(t, numbers(5)...)
		k.RunUntilDrained(t, "g", copier{cl: k.Connect(t)})
		before := k.Requests(StageKey)
		if all := k.Requests(95); before == 0 || before >= all {
			t.Errorf("%d stages, %d of them with handshakes", before, all)
		}
		fired := k.Inject(t, Fault{Key: StageKey, Nth: 3, TransactionalID: "copier-b", Action: LoseAnswer()})
		for i, id := range []string{"", "-b", "", "-b"} {
			select {
			case <-fired:
				t.Errorf("fired before transaction %d", i)
			default:
			}
			k.Feed(t, numbers(1)...)
			k.RunUntilDrained(t, "g", copier{cl: k.Connect(t), id: id})
		}
		<-fired
		// Each transaction stages and proves it; the fault's request was repeated.
		if n := k.Requests(StageKey) - before; n != 9 {
			t.Errorf("%d stages", n)
		}
		k.AssertExactlyOnce(t, "g")
	})
}

// A fault may wait for another's; of clients it may name one.
func TestFaultsInTurn(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	synctest.Test(t, func(t *testing.T) {
		k := Start(t, Topic("in", 1), Topic("out", 1))
		k.Feed(t, numbers(5)...)
		first := k.Inject(t, Fault{Key: EndTxnKey, Action: LoseAnswer()})
		k.Inject(t, Fault{Key: EndTxnKey, After: first, Action: LoseRequest()})
		never := make(chan struct{})
		var others []<-chan struct{}
		for _, f := range []Fault{{Key: EndTxnKey, After: never}, {Key: EndTxnKey, ClientID: "another"}} {
			f.Action, f.MayMiss = Answer(kerr.ProducerFenced.Code), true
			others = append(others, k.Inject(t, f))
		}
		k.RunUntilDrained(t, "g", copier{cl: k.Connect(t)})
		for i, fired := range others {
			select {
			case <-fired:
				t.Errorf("fault %d has met a request that it does not count", i)
			default:
			}
		}
		k.AssertExactlyOnce(t, "g", "out")
	})
}

// A repeated InitProducerID fences whom it was for: nothing is published, and
// the error says why.
func TestInitTwice(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	synctest.Test(t, func(t *testing.T) {
		k := Start(t, Topic("in", 1), Topic("out", 1))
		k.Feed(t, numbers(1)...)
		k.Inject(t, Fault{Key: InitProducerIDKey, Action: DeliverTwice()})
		if err := (copier{cl: k.Connect(t)}).Run(t.Context()); !errors.Is(err, sharetxn.ErrFenced) {
			t.Errorf("ended with %v", err)
		}
		wantNumbers(t, k, "out", 0)
	})
}

func TestFaultsThatDoNotFire(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	failed, _ := verdict(t, func(t testing.TB) {
		k := Start(t, Topic("in", 1))
		k.Inject(t, Fault{Key: EndTxnKey, Action: LoseAnswer()})
		k.Inject(t, Fault{Key: MetadataKey, Nth: 900, Action: LeaderMoves("in", 0, 0)})
		k.Inject(t, Fault{Key: ProduceKey, Action: DeliverTwice()})
		k.Inject(t, Fault{Key: ProduceKey, Nth: 900, Action: DeliverTwice(), MayMiss: true})
		k.Inject(t, Fault{Key: ProduceKey, ClientID: "service", Action: DeliverTwice()})
		k.Feed(t, numbers(1)...)
	})
	wantText(t, "unfired", failed,
		"never fired: Produce number 1: deliver twice", "never fired: Metadata number 900: the leader of in-0 moves to broker 0", "never fired: EndTxn number 1: lose the answer")
	for what, f := range map[string]Fault{
		"has no Action":           {Key: EndTxnKey},
		"no API key 999":          {Key: 999, Action: LoseAnswer()},
		"no API key -3":           {Key: ProofKey - 1, Action: LoseAnswer()},
		"Nth -1":                  {Key: EndTxnKey, Nth: -1, Action: LoseAnswer()},
		"StockKafka44 has no sta": {Key: StageKey, Action: LoseAnswer()},
	} {
		failed, _ := verdict(t, func(t testing.TB) { Start(t, StockKafka44()).Inject(t, f) })
		wantText(t, "refused", failed, what)
	}
}

// While brokers are parted a transaction across them waits.
func TestPart(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	synctest.Test(t, func(t *testing.T) {
		k := Start(t, Brokers(2), Topic("in", 2), Topic("out", 2))
		k.Feed(t, numbers(10)...)
		k.Part(t, 1, 0)
		began := time.Now()
		time.AfterFunc(6*time.Second, func() { k.Heal(0, 1) })
		k.RunUntilDrained(t, "g", copier{cl: k.Connect(t)})
		if d := time.Since(began); d < 6*time.Second {
			t.Errorf("done after %v", d)
		}
		wantNumbers(t, k, "out", 10)
		k.AssertExactlyOnce(t, "g", "out")
	})
}

// A staged record whose leader moves is staged still in the draft; the KIP's
// text loses it, and then publishes it twice: conceded, and said so.
func TestLeaderMovesWhileStaged(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	for _, p := range []sharetxn.Profile{sharetxn.ProfileDraft95, sharetxn.ProfileKIP93} {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := Start(t, Profile(p), Brokers(2), Topic("in", 1), Topic("out", 1))
				k.Feed(t, numbers(3)...)
				k.Inject(t, Fault{Key: EndTxnKey, Action: LeaderMoves("in", 0, 1)})
				cl := k.Connect(t)
				var logged []string
				failed, logged := verdict(t, func(t testing.TB) {
					k.RunUntilDrained(t, "g", copier{cl: cl})
					k.AssertExactlyOnce(t, "g", "out")
				})
				wantText(t, "failures", failed)
				if p == sharetxn.ProfileDraft95 {
					wantText(t, "log", logged)
					wantNumbers(t, k, "out", 3)
					return
				}
				wantText(t, "log", logged, "duplicate: in-0 offsets 0 to 2: acknowledged by transaction copier")
				if n := len(k.Committed(t, "out")); n != 6 {
					t.Errorf("%d records visible, want each twice", n)
				}
			})
		})
	}
}

func TestStockKafka44(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	worlds(t, func(t *testing.T) {
		k := Start(t, StockKafka44(), Topic("in", 1))
		k.Feed(t, numbers(1)...)
		if err := (copier{cl: k.Connect(t)}).Run(t.Context()); !errors.Is(err, sharetxn.ErrUnsupported) {
			t.Errorf("ended with %v", err)
		}
		if n := k.Requests(StageKey) + k.Requests(95); n != 0 {
			t.Errorf("%d stages", n)
		}
	})
}

// A marker is lost once, and nothing waits for it.
func TestLoseMarker(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	synctest.Test(t, func(t *testing.T) {
		k := Start(t, Topic("in", 1), Topic("out", 1))
		lost := k.LoseMarker(t, "out", 0)
		k.Feed(t, numbers(20)...)
		k.RunUntilDrained(t, "g", copier{cl: k.Connect(t)})
		select {
		case <-lost:
		default:
			t.Fatal("no marker was lost")
		}
	})
}
