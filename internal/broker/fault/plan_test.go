package fault

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// met tells which of the faults a plan gave to each of the requests, by name;
// "" for none.
func met(p *Plan, rs ...broker.Request) (out []string) {
	for _, r := range rs {
		before := len(p.Firings())
		p.Intercept()(r)
		name := ""
		if fs := p.Firings(); len(fs) > before {
			name = fs[len(fs)-1].Fault.String()
		}
		out = append(out, name)
	}
	return out
}

// Several faults are counted each for itself; two that are due at one request
// take one each, in the order they were planned.
func TestSeveralFaults(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	produce, end, other := broker.Request{Key: 0}, broker.Request{Key: 26}, broker.Request{Key: 0, Node: 1}
	p := New(1)
	if got := met(p, produce, produce); !slices.Equal(got, []string{"", ""}) {
		t.Fatalf("an empty plan gave %q", got)
	}
	p.Add(Fault{Name: "second", Key: 0, When: When{Nth: 2}, Action: LoseRequest()})
	p.Add(Fault{Name: "end", Key: 26, Action: LoseAnswer()})
	p.Add(Fault{Name: "also second", Key: 0, When: When{Nth: 2}, Action: DeliverTwice()})
	p.Add(Fault{Name: "at 1", Key: 0, Only: []Match{AtNode(1)}})
	gone := p.Add(Fault{Name: "cancelled", Key: 0})
	gone.Cancel()
	left := p.Add(Fault{Name: "never", Key: 0, When: When{Nth: 7}})
	got := met(p, produce, end, end, produce, produce, other, produce)
	if want := []string{"", "end", "", "second", "also second", "at 1", ""}; !slices.Equal(got, want) {
		t.Errorf("met %q, want %q", got, want)
	}
	if un := p.Unfired(); len(un) != 1 || un[0] != left || gone.Count() != 0 {
		t.Errorf("unfired %v, cancelled fired %d times", un, gone.Count())
	}
	for _, f := range p.Firings() {
		select {
		case <-f.Fault.Fired():
		default:
			t.Errorf("%v is not told as fired", f.Fault)
		}
	}
}

// Faults without a name are named by what they do.
func TestNames(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for want, f := range map[string]Fault{
		"EndTxn, number 1: lose the answer":                                       {Key: 26, Action: LoseAnswer()},
		"TxnShareAcknowledge, number 3: answer code 51":                           {Key: StageKey, When: When{Nth: 3}, Action: Answer(51)},
		"Produce, number 1: run a function":                                       {Key: 0, Then: func() {}},
		"Fetch, number 1 and those after: delay by 1s and run a function":         {Key: 1, When: When{Times: Always}, Action: Delay(time.Second), Before: func() {}},
		"Fetch, number 1 and those after with chance 0.5, 2 times: deliver twice": {Key: 1, When: When{Times: 2, Chance: 0.5}, Action: DeliverTwice()},
		"mine": {Name: "mine"},
	} {
		if got := New(1).Add(f).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Requests are told apart by transactional id, and by anything in them; which
// of a transaction's requests have one is known for all of them.
func TestMatch(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	plan := New(1)
	w := startWorld(ctx, t, plan, plainConfig())
	of := plan.Add(Fault{Name: "of x", Key: int16(kmsg.InitProducerID), Only: []Match{OfTransaction("x")}, Action: Answer(14)})
	long := plan.Add(Fault{Name: "long", Key: int16(kmsg.InitProducerID), Action: Answer(15), Only: []Match{
		Request(func(r *kmsg.InitProducerIDRequest) bool { return r.TransactionTimeoutMillis > 100_000 }),
	}})
	raw := w.raw(ctx, t)
	ask := func(id string, timeout int32, want int16) {
		t.Helper()
		req := initProducerV4(id)
		req.TransactionTimeoutMillis = timeout
		if got := firstCode(raw.ask(req)); got != want {
			t.Errorf("%s with timeout %d: code %d, want %d", id, timeout, got, want)
		}
	}
	ask("y", 60_000, 0)
	ask("x", 200_000, 14) // meets the first; the second is owed one
	ask("y", 200_000, 15)
	ask("x", 200_000, 0)
	if of.Count() != 1 || long.Count() != 1 {
		t.Errorf("fired %d and %d times", of.Count(), long.Count())
	}
	for _, name := range []string{"produce", "init producer id", "end txn", "stage"} {
		plan := New(1)
		w := startWorld(ctx, t, plan, plainConfig())
		req, _ := scenes[name].prepare(ctx, w)
		id := "x"
		if p, ok := req.(*kmsg.ProduceRequest); ok {
			p.TransactionID = &id
		}
		theirs := plan.Add(Fault{Key: scenes[name].key, Only: []Match{OfTransaction("y")}})
		mine := plan.Add(Fault{Key: scenes[name].key, Only: []Match{OfTransaction("x")}})
		w.request(ctx, 0, req)
		if mine.Count() != 1 || theirs.Count() != 0 {
			t.Errorf("%s: fired %d times, and %d for another id", name, mine.Count(), theirs.Count())
		}
	}
}

// A code for which a request has no place leaves it alone and says why; the next
// is answered with it.
func TestNoPlaceForCode(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	plan := New(1)
	w := startWorld(ctx, t, plan, plainConfig())
	planned := plan.Add(Fault{Key: int16(kmsg.DescribeLogDirs), Action: Answer(15)})
	if resp := w.raw(ctx, t).ask(kmsg.NewPtrDescribeLogDirsRequest()).(*kmsg.DescribeLogDirsResponse); len(resp.Dirs) == 0 {
		t.Error("the request was not handled")
	}
	un := plan.Unfired()
	if len(un) != 1 || un[0] != planned || planned.Count() != 0 || planned.Err() == nil {
		t.Fatalf("unfired %v, %v", un, planned.Err())
	}
	if s := planned.Err().Error(); !strings.Contains(s, "DescribeLogDirs") || !strings.Contains(s, "no place") {
		t.Errorf("%s", s)
	}
	next := kmsg.NewPtrDescribeLogDirsRequest()
	next.Version = 4
	if resp := w.raw(ctx, t).ask(next); firstCode(resp) != 15 || planned.Count() != 1 || planned.Err() != nil || len(plan.Unfired()) != 0 {
		t.Errorf("the next, which has a place, was answered %d; fired %d times, %v", firstCode(resp), planned.Count(), planned.Err())
	}
}

// A leader moves, or its broker restarts, exactly when the request was staged
// and is not answered yet: the draft keeps what is staged, the KIP text loses it.
func TestLostLeaderWhileStaged(t *testing.T) {
	for _, profile := range []wire.Profile{wire.Draft95, wire.KIP93} {
		for _, tc := range []struct {
			name   string
			then   func(w *world) error
			cut    bool
			leader int32
		}{
			{"moved", func(w *world) error { return w.MoveLeader("in", 0, 1) }, false, 1},
			{"restarted", func(w *world) error { return w.RestartNode(0) }, true, 0},
			{"another restarted", func(w *world) error { return w.RestartNode(1) }, false, 0},
		} {
			t.Run(profile.String()+", "+tc.name, func(t *testing.T) {
				ctx := testkit.Deadline(t, 30*time.Second)
				plan := New(1)
				cfg := plainConfig()
				cfg.Brokers, cfg.Profile = 2, profile
				w := startWorld(ctx, t, plan, cfg)
				req, handled := stageScene(ctx, w)
				staged, done := 0, make(chan error, 1)
				planned := plan.Add(Fault{Key: StageKey, Then: func() {
					staged = handled()
					done <- tc.then(w)
				}})
				resp, err := w.try(ctx, 0, req)
				if (err != nil) != tc.cut || err == nil && firstCode(resp) != 0 {
					t.Fatalf("answered %+v, %v", resp, err)
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if planned.Count() != 1 || staged != 1 || w.Leader("in", 0) != tc.leader {
					t.Fatalf("fired %d times, %d staged, the leader is %d", planned.Count(), staged, w.Leader("in", 0))
				}
				want := share.TxPending
				if profile == wire.KIP93 && tc.name != "another restarted" {
					want = share.Available
				}
				if s, _, _, _ := w.StateOf("g", "in", 0, 0); s != want {
					t.Errorf("record 0 is %v, want %v", s, want)
				}
				w.request(ctx, routed, initProducer("neighbour"))
			})
		}
	}
}

// Before is run when nothing is done yet, Then when all is.
func TestBeforeAndThen(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	plan := New(1)
	w := startWorld(ctx, t, plan, plainConfig())
	req, handled := produceScene(ctx, w)
	before, then := -1, -1
	plan.Add(Fault{Key: int16(kmsg.Produce), Before: func() { before = handled() }, Then: func() { then = handled() }, Action: DeliverTwice()})
	resp := w.request(ctx, 0, req).(*kmsg.ProduceResponse)
	if code := firstCode(resp); code != 0 || before != 0 || then != 2 {
		t.Errorf("code %d; handled %d times before, %d then", code, before, then)
	}
	if at := resp.Topics[0].Partitions[0].BaseOffset; at != 0 {
		t.Errorf("answered with offset %d, which is the second's", at)
	}
}

// Chances of one fault are not moved by requests that meet another, and are not
// the same.
func TestChancesAreTheirOwn(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	pattern := func(others int) (one, two []int) {
		p := New(1)
		a := p.Add(Fault{Key: 0, When: When{Chance: 0.5, Times: Always}})
		b := p.Add(Fault{Key: 26, When: When{Chance: 0.5, Times: Always}})
		for range 100 {
			for range others {
				p.Intercept()(broker.Request{Key: 0})
				one = append(one, a.Count())
			}
			p.Intercept()(broker.Request{Key: 26})
			two = append(two, b.Count())
		}
		return one, two
	}
	one, two := pattern(1)
	_, alone := pattern(0)
	if !slices.Equal(two, alone) {
		t.Error("requests of another fault changed the chances")
	}
	if slices.Equal(one, two) {
		t.Error("two faults have the same chances")
	}
}

// Plans are used from many connections at once.
func TestConcurrentRequests(t *testing.T) {
	testkit.Deadline(t, 30*time.Second)
	p := New(1)
	each := p.Add(Fault{Key: 0, When: When{Every: 10, Times: Always}, Action: LoseRequest()})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				p.Intercept()(broker.Request{Key: 0})
				each.Count()
				p.Unfired()
			}
		})
	}
	wg.Wait()
	if each.Count() != 80 {
		t.Errorf("fired %d times", each.Count())
	}
}
