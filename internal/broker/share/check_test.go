package share

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// check is what must hold of a share partition after every operation.
func check(p *partition) error {
	at := p.start
	done := int64(0)
	for i, e := range p.entries {
		if e.first != at || e.last < e.first {
			return fmt.Errorf("entry %d is [%d,%d], want it to begin at %d", i, e.first, e.last, at)
		}
		if i > 0 && p.entries[i-1].joins(e) {
			return fmt.Errorf("entries %d and %d are not told apart", i-1, i)
		}
		if locked := e.state == Acquired || (e.state == TxPending && p.sem.lockRuns); locked != !e.deadline.IsZero() {
			return fmt.Errorf("entry %d: %v with lock until %v", i, e.state, e.deadline)
		}
		if (e.state == Acquired || e.state == TxPending) != (e.owner != "") {
			return fmt.Errorf("entry %d: %v owned by %q", i, e.state, e.owner)
		}
		_, known := p.sem.target(e.verdict)
		if some := e.producerID != 0 || e.producerEpoch != 0 || e.verdict != 0; (e.state == TxPending && !known) || (e.state != TxPending && some) {
			return fmt.Errorf("entry %d: %v with %v staged by %d at %d", i, e.state, e.verdict, e.producerID, e.producerEpoch)
		}
		if e.state.terminal() {
			done += e.offsets()
		}
		at = e.last + 1
	}
	if at != p.end {
		return fmt.Errorf("entries end at %d, window at %d", at, p.end)
	}
	if len(p.entries) > 0 && p.entries[0].state.terminal() {
		return fmt.Errorf("start %d stands before what is done", p.start)
	}
	if got := p.deliveryComplete(); got != done {
		return fmt.Errorf("delivery complete is %d, recount %d", got, done)
	}
	return nil
}

// TestCheckFinds breaks a share partition in each way that check knows.
func TestCheckFinds(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	lock := time.Now()
	fresh := func() *partition {
		return &partition{start: 5, end: 20, sem: semanticsOf(wire.Draft95), entries: []entry{
			{first: 5, last: 9, state: Acquired, owner: "a", deadline: lock, count: 1},
			{first: 10, last: 14, state: TxPending, owner: "a", producerID: 7, verdict: acks.Accept, count: 1},
			{first: 15, last: 19},
		}}
	}
	if err := check(fresh()); err != nil {
		t.Fatalf("sound partition: %v", err)
	}
	for _, c := range []struct {
		name, want string
		spoil      func(*partition)
	}{
		{"hole", "want it to begin", func(p *partition) { p.entries[1].first++ }},
		{"inverted", "want it to begin", func(p *partition) { p.entries[1].last = 9 }},
		{"not joined", "not told apart", func(p *partition) {
			p.entries[1] = p.entries[0]
			p.entries[1].first, p.entries[1].last = 10, 14
		}},
		{"lock without acquisition", "with lock", func(p *partition) { p.entries[2].deadline = lock }},
		{"acquisition without lock", "with lock", func(p *partition) { p.entries[0].deadline = time.Time{} }},
		{"owner of what is available", "owned by", func(p *partition) { p.entries[2].owner = "a" }},
		{"acquired by nobody", "owned by", func(p *partition) { p.entries[0].owner = "" }},
		{"lock that should have stopped", "with lock", func(p *partition) { p.entries[1].deadline = lock }},
		{"lock that should run on", "with lock", func(p *partition) { p.sem = semanticsOf(wire.KIP93) }},
		{"staged for nothing", "staged by", func(p *partition) { p.entries[1].verdict = acks.Release }},
		{"staged by a producer and not staged", "staged by", func(p *partition) { p.entries[0].producerID = 7 }},
		{"verdict of what is not staged", "staged by", func(p *partition) { p.entries[0].verdict = acks.Accept }},
		{"end", "window at", func(p *partition) { p.end++ }},
		{"start", "before what is done", func(p *partition) { p.entries[0] = entry{first: 5, last: 9, state: Archived} }},
	} {
		p := fresh()
		c.spoil(p)
		if err := check(p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: check says %v, want something with %q", c.name, err, c.want)
		}
	}
}
