package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// Two replicas with one Instance: the older ends and says why; the newer does
// what it held, once.
func TestSameInstance(t *testing.T) {
	ctx := testkit.Deadline(t, 2*time.Minute)
	k, g := start(t, 2, 5), newGate(t)
	feed(t, k, "word", 5)
	older := startPod(t, k, g, "shouters-0")
	inHand := g.next(ctx, t)
	newer := startPod(t, k, g, "shouters-0")
	newer.wantReady(ctx, t)
	g.open()
	inHand.answer(accept) // the older would commit it now
	if code := older.exit(ctx, t); code != exitError {
		t.Errorf("the older one's exit status is %d, want %d", code, exitError)
	}
	for _, why := range []string{"fenced by a newer producer", `Instance "shouters-0"`, "give each replica an Instance of its own"} {
		if !strings.Contains(older.said(), why) {
			t.Errorf("the older one does not say %q", why)
		}
	}
	k.WaitDrained(t, "shouters")
	newer.terminate(ctx, t)
	if code := newer.exit(ctx, t); code != 0 {
		t.Errorf("the newer one's exit status is %d", code)
	}
	wantAll(t, k, map[string]int{"word": 5})
	if n := g.delivered(inHand.value); n != 2 {
		t.Errorf("the record in hand was delivered %d times", n)
	}
}

// Two replicas with an Instance each both work.
func TestTwoInstances(t *testing.T) {
	ctx := testkit.Deadline(t, 2*time.Minute)
	k, g := start(t, 2, 5), newGate(t)
	pods := []*pod{startPod(t, k, g, "shouters-0"), startPod(t, k, g, "shouters-1")}
	for _, p := range pods {
		p.wantReady(ctx, t)
	}
	// One that waits for an answer takes no more than it has, so the other gets
	// some soon.
	n := 0
	asked := make(map[string]*question)
	for ; len(asked) < 2; n++ {
		feed(t, k, "w"+strconv.Itoa(n)+"-", 10)
		q := g.next(ctx, t)
		asked[q.pod] = q
	}
	g.open()
	for _, q := range asked {
		q.answer(accept)
	}
	k.WaitDrained(t, "shouters")
	for _, p := range pods {
		p.terminate(ctx, t)
		if code := p.exit(ctx, t); code != 0 {
			t.Errorf("exit status %d", code)
		}
	}
	want := make(map[string]int)
	for i := range n {
		want["w"+strconv.Itoa(i)+"-"] = 10
	}
	wantAll(t, k, want)
}

// A record that kills the process on every delivery: the broker archives it
// after the last, and what was in hand beside it each time, without a dead
// letter; the service goes on. This is the limit that docs/processor.md names.
func TestDeadlyRecord(t *testing.T) {
	ctx := testkit.Deadline(t, 2*time.Minute)
	// One partition: of several, some would be assigned to the dead member until
	// its session times out.
	k, g := start(t, 1, 2), newGate(t)
	feed(t, k, "deadly", 2)
	for delivery := range 2 {
		p := startPod(t, k, g, "shouters-0")
		q := g.next(ctx, t)
		if q.value != "deadly0" || q.delivery != delivery+1 {
			t.Errorf("%s in delivery %d, want deadly0 in %d", q.value, q.delivery, delivery+1)
		}
		q.answer(die)
		if code := p.exit(ctx, t); code != 9 {
			t.Fatalf("exit status %d", code)
		}
	}
	feed(t, k, "word", 3)
	p := startPod(t, k, g, "shouters-0")
	g.open()
	k.WaitDrained(t, "shouters")
	p.terminate(ctx, t)
	if code := p.exit(ctx, t); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if got := shouts(t, k); len(got) != 3 || got["deadly0"]+got["deadly1"] > 0 {
		t.Errorf("shouted: %v", got)
	}
	if n := len(k.Committed(t, "words.dead")); n > 0 {
		t.Errorf("%d dead letters: the limit is gone, and the page must say so", n)
	}
	if n := g.delivered("deadly0"); n != 2 {
		t.Errorf("delivered %d times", n)
	}
}

// The manifest leaves time to stop, and tells the program its name and where it
// is probed.
func TestManifest(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	text, err := os.ReadFile("statefulset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	find := func(pattern string) string {
		t.Helper()
		m := regexp.MustCompile(pattern).FindSubmatch(text)
		if m == nil {
			t.Fatalf("no %s", pattern)
		}
		return string(m[1])
	}
	stop, err := time.ParseDuration(find(`-stop-timeout=(\w+)`))
	if err != nil {
		t.Fatal(err)
	}
	grace, err := strconv.Atoi(find(`terminationGracePeriodSeconds: (\d+)`))
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Duration(grace)*time.Second - stop; left < 20*time.Second {
		t.Errorf("%v left after a soft stop of %v", left, stop)
	}
	for _, want := range []string{`(POD_NAME)\n\s+valueFrom: \{fieldRef: \{fieldPath: metadata.name\}\}`, `path: (/ready)`, `path: (/live)`, `containerPort: (8080)`} {
		find(want)
	}
}
