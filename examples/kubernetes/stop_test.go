package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// soon is when a record is there again that was given back at once: well before
// its lock of a minute ends.
const soon = 20 * time.Second

// start gives a cluster on sockets.
func start(t *testing.T, partitions, limit int) *sharetxntest.Cluster {
	t.Helper()
	return sharetxntest.Start(t, sharetxntest.Topic("words", partitions), sharetxntest.Topic("shouts", 2), sharetxntest.Topic("words.dead", 1),
		sharetxntest.Group("shouters", sharetxntest.GroupConfig{LockDuration: time.Minute, DeliveryLimit: limit}))
}

// feed gives words <name>0 to <name>n-1.
func feed(t *testing.T, k *sharetxntest.Cluster, name string, n int) {
	t.Helper()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: "words", Value: fmt.Appendf(nil, "%s%d", name, i)}
	}
	k.Feed(t, rs...)
}

// shouts are the visible outputs, as the words they were made of.
func shouts(t *testing.T, k *sharetxntest.Cluster) map[string]int {
	t.Helper()
	out := make(map[string]int)
	for _, r := range k.Committed(t, "shouts") {
		out[strings.ToLower(string(r.Value))]++
	}
	return out
}

// wantAll checks that each of so many words was shouted once.
func wantAll(t *testing.T, k *sharetxntest.Cluster, words map[string]int) {
	t.Helper()
	k.AssertExactlyOnce(t, "shouters", "shouts", "words.dead")
	want := make(map[string]int)
	for name, n := range words {
		for i := range n {
			want[fmt.Sprintf("%s%d", name, i)] = 1
		}
	}
	if got := shouts(t, k); !maps.Equal(got, want) {
		t.Errorf("shouted: %v\nwant: %v", got, slices.Sorted(maps.Keys(want)))
	}
}

// SIGTERM in the middle of work: what is in hand is committed, what would wait
// is given back at once, the exit is clean, and a restart goes on.
func TestSoftStop(t *testing.T) {
	ctx := testkit.Deadline(t, 2*time.Minute)
	k, g := start(t, 2, 5), newGate(t)
	feed(t, k, "early", 20)
	p := startPod(t, k, g, "shouters-0")
	p.wantReady(ctx, t)
	if got := p.probe(ctx, "/live"); got != http.StatusOK {
		t.Errorf("/live answers %d", got)
	}
	waiting := g.next(ctx, t)
	waiting.answer(release)
	inHand := g.next(ctx, t) // a handler is at work
	p.terminate(ctx, t)
	stopped := time.Now()
	feed(t, k, "late", 5)
	inHand.answer(accept)
	handled := map[string]int{inHand.value: 1}
	for over := false; !over; {
		select {
		case q := <-g.questions:
			q.answer(accept)
			handled[q.value] = 1
		case <-p.ended:
			over = true
		case <-ctx.Done():
			t.Fatal("the pod does not end")
		}
	}
	if code := p.exit(ctx, t); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if took := time.Since(stopped); took > soon {
		t.Errorf("the soft stop took %v", took)
	}
	if got := shouts(t, k); !maps.Equal(got, handled) {
		t.Errorf("shouted: %v\nhandled: %v", got, handled)
	}
	restarted := time.Now()
	p = startPod(t, k, g, "shouters-0")
	g.open()
	k.WaitDrained(t, "shouters")
	if took := time.Since(restarted); took > soon {
		t.Errorf("the rest took %v: what was given back must not wait for its lock", took)
	}
	p.terminate(ctx, t)
	if code := p.exit(ctx, t); code != 0 {
		t.Errorf("exit status %d", code)
	}
	wantAll(t, k, map[string]int{"early": 20, "late": 5})
	if n := g.delivered(waiting.value); n != 2 {
		t.Errorf("the record given back was delivered %d times", n)
	}
}

// A second SIGTERM ends handlers and aborts: quickly, with nothing lost or
// doubled, and a restart goes on.
func TestHardStop(t *testing.T) {
	ctx := testkit.Deadline(t, 2*time.Minute)
	k, g := start(t, 2, 5), newGate(t)
	feed(t, k, "done", 5)
	p := startPod(t, k, g, "shouters-0")
	for range 5 {
		g.next(ctx, t).answer(accept)
	}
	testkit.Eventually(ctx, t, "the first words are shouted", func() bool { return len(shouts(t, k)) == 5 })
	feed(t, k, "open", 10)
	g.next(ctx, t).answer(accept) // decided, and waits for its neighbours
	inHand := g.next(ctx, t)
	p.terminate(ctx, t)
	select {
	case <-p.ended:
		t.Fatal("the first SIGTERM did not wait for what is in hand")
	default:
	}
	p.signal(t)
	stopped := time.Now()
	if code := p.exit(ctx, t); code != exitHard {
		t.Errorf("exit status %d, want %d", code, exitHard)
	}
	if took := time.Since(stopped); took > 10*time.Second {
		t.Errorf("the hard stop took %v", took)
	}
	if !strings.Contains(p.said(), errHard.Error()) {
		t.Error("the log does not say that it stopped hard")
	}
	if got := shouts(t, k); got[inHand.value] > 0 {
		t.Errorf("%s was shouted, and its handler had not returned", inHand.value)
	}
	restarted := time.Now()
	p = startPod(t, k, g, "shouters-0")
	g.open()
	k.WaitDrained(t, "shouters")
	if took := time.Since(restarted); took > soon {
		t.Errorf("the rest took %v: what was given back must not wait for its lock", took)
	}
	p.terminate(ctx, t)
	if code := p.exit(ctx, t); code != 0 {
		t.Errorf("exit status %d", code)
	}
	wantAll(t, k, map[string]int{"done": 5, "open": 10})
	if n := g.delivered(inHand.value); n != 2 {
		t.Errorf("the record in hand was delivered %d times", n)
	}
}

// A process that dies without a word, with work decided and not committed: all
// is done once, after a restart.
func TestKilled(t *testing.T) {
	ctx := testkit.Deadline(t, 2*time.Minute)
	k, g := start(t, 1, 5), newGate(t)
	feed(t, k, "word", 10)
	p := startPod(t, k, g, "shouters-0")
	decided := g.next(ctx, t)
	decided.answer(accept) // and waits for its neighbours
	inHand := g.next(ctx, t)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(ctx, t); code != -1 {
		t.Errorf("exit status %d: it was not killed", code)
	}
	p = startPod(t, k, g, "shouters-0")
	g.open()
	k.WaitDrained(t, "shouters")
	p.terminate(ctx, t)
	if code := p.exit(ctx, t); code != 0 {
		t.Errorf("exit status %d", code)
	}
	wantAll(t, k, map[string]int{"word": 10})
	if n := g.delivered(inHand.value); n != 2 {
		t.Errorf("the record in hand was delivered %d times", n)
	}
}
