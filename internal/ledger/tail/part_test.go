package tail

import (
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// record is a generation record at an offset, as it is read.
func record(t *testing.T, offset int64) *kgo.Record {
	t.Helper()
	value, err := active(1).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &kgo.Record{Offset: offset, Value: value}
}

// What does not follow is a gap, or a log that is not the one that was read; and
// what is lost stays lost until all is read again.
func TestContinuity(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	type step struct {
		offset  int64  // of a record that is read; -1: settle
		log     bounds // with settle
		how     resumption
		skipped int64
		err     error
		next    int64
		loaded  bool
	}
	for _, c := range []struct {
		name  string
		first bounds
		steps []step
	}{
		{"an empty log", bounds{0, 0}, []step{
			{offset: -1, log: bounds{0, 0}, how: goOn, next: 0, loaded: true},
			{offset: 0, next: 1, loaded: true},
		}},
		{"loading", bounds{3, 5}, []step{
			{offset: 3, next: 4},
			{offset: 4, next: 5, loaded: true},
			{offset: 5, next: 6, loaded: true},
		}},
		{"a jump", bounds{3, 5}, []step{
			{offset: 3, next: 4},
			{offset: 9, skipped: 5, next: 10},
			{offset: -1, log: bounds{9, 12}, how: goOn, next: 10},
			{offset: 10, next: 11},
			{offset: 11, next: 12, loaded: true},
		}},
		{"truncated", bounds{3, 5}, []step{
			{offset: 3, next: 4},
			{offset: -1, log: bounds{7, 9}, how: skip, skipped: 3, next: 7},
			{offset: 7, next: 8},
			{offset: 8, next: 9, loaded: true},
		}},
		{"truncated while it loads, wholly", bounds{0, 5}, []step{
			{offset: -1, log: bounds{8, 8}, how: skip, skipped: 8, next: 8, loaded: true},
		}},
		{"cut off, and found so by the leader", bounds{0, 5}, []step{
			{offset: 0, next: 1},
			{offset: 1, next: 2},
			{offset: -1, log: bounds{0, 1}, how: anew, skipped: 1, next: 0},
			{offset: 0, next: 1, loaded: true},
		}},
		{"cut off, and written again", bounds{0, 1}, []step{
			{offset: 0, next: 1, loaded: true},
			{offset: 1, next: 2, loaded: true},
			{offset: 0, err: errLost, next: 2},
			{offset: 2, err: errLost, next: 2}, // as if nothing had been
			{offset: -1, log: bounds{0, 3}, how: anew, next: 0},
			{offset: 0, next: 1},
			{offset: 1, next: 2},
			{offset: 2, next: 3, loaded: true},
		}},
		{"a leader that is not up to date", bounds{0, 1}, []step{
			{offset: 0, next: 1, loaded: true},
			{offset: -1, log: bounds{0, 1}, how: goOn, next: 1, loaded: true},
		}},
	} {
		p := newPart(group, 0, c.first)
		for i, s := range c.steps {
			var (
				how     resumption
				skipped int64
				err     error
			)
			if s.offset < 0 {
				how, skipped, err = p.settle(group, s.log)
			} else {
				var got read
				got, err = p.apply([]*kgo.Record{record(t, s.offset)})
				skipped = got.skipped
			}
			if next, _ := p.at(); !errors.Is(err, s.err) || how != s.how || skipped != s.skipped || next != s.next || p.loaded() != s.loaded {
				t.Errorf("%s, step %d: %d, %d skipped, %v, next %d, loaded %v; want %+v", c.name, i, how, skipped, err, next, p.loaded(), s)
			}
		}
	}
}

// Who loads asks where the log begins while another reads it: an end that was
// passed meanwhile takes nothing back.
func TestForwardWhileReading(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		name    string
		read    int64
		log     bounds
		skipped int64
		next    int64
		loaded  bool
	}{
		{"read past the end that was told", 4, bounds{0, 3}, 0, 4, true},
		{"at the end", 3, bounds{0, 3}, 0, 3, true},
		{"truncated", 1, bounds{2, 3}, 1, 2, false},
		{"truncated, and read past it meanwhile", 3, bounds{2, 3}, 0, 3, true},
		{"truncated, wholly", 1, bounds{5, 5}, 4, 5, true},
	} {
		p := newPart(group, 0, bounds{0, 3})
		for o := range c.read {
			if _, err := p.apply([]*kgo.Record{record(t, o)}); err != nil {
				t.Fatal(err)
			}
		}
		skipped, err := p.forward(c.log)
		if next, _ := p.at(); err != nil || skipped != c.skipped || next != c.next || p.loaded() != c.loaded {
			t.Errorf("%s: %d skipped, %v, next %d, loaded %v; want %+v", c.name, skipped, err, next, p.loaded(), c)
		}
		if _, err := p.current(); (err == nil) != (c.skipped == 0) {
			t.Errorf("%s: the generation: %v", c.name, err)
		}
	}
}

// While a part is lost, or not loaded, it says nothing.
func TestNothingIsSaidBeforeItIsLoaded(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p := newPart(group, 0, bounds{0, 2})
	at := []Position{{Topic: "in", TopicID: [16]byte{1}, Offset: 5}}
	out := []index.Verdict{index.Done}
	says := func() bool { said, _ := p.look(at, out); return said }
	if says() || p.past(0) {
		t.Error("before anything was read")
	}
	if _, err := p.apply([]*kgo.Record{record(t, 0)}); err != nil || says() || p.past(0) {
		t.Errorf("half loaded: %v", err)
	}
	if _, err := p.apply([]*kgo.Record{record(t, 1)}); err != nil || !says() || out[0] != index.Fresh || !p.past(1) {
		t.Errorf("loaded: %v, %v", out, err)
	}
	if p.lose(); says() || p.past(1) || p.loaded() {
		t.Error("lost")
	}
	if g, keep := p.deletable(); keep != 0 || p.keep(active(1)) != 0 {
		t.Errorf("lost, and may be deleted up to %d (%v)", keep, g)
	}
}

// A truncation under way deletes nothing of before a move or a reset that begins
// meanwhile: the move still has to see what is done.
func TestTruncationOvertakenByMove(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	moving := entry.Generation{Number: 2, Guarantee: "staged", Phase: entry.Resetting, Group: group}
	for _, c := range []struct {
		name  string
		after []entry.Generation
		keep  int64
	}{
		{"nothing happens", []entry.Generation{active(1)}, 3},
		{"a move begins", []entry.Generation{moving, active(1)}, 0},
		{"a move begins behind the copy", []entry.Generation{active(1), moving}, 0},
		{"a reset begins", []entry.Generation{resetting(2), active(1)}, 0},
		{"a reset has ended", []entry.Generation{resetting(2), active(2), active(1)}, 0},
	} {
		p := newPart(group, 0, bounds{0, 3})
		read := func(g entry.Generation) {
			next, _ := p.at()
			value, err := g.Append(nil)
			if err == nil {
				_, err = p.apply([]*kgo.Record{{Offset: next, Value: value}})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			read(active(1))
		}
		g, deletable := p.deletable()
		if deletable != 3 {
			t.Fatalf("%s: %d is deletable", c.name, deletable)
		}
		for _, a := range c.after {
			read(a)
		}
		if got := p.keep(g); got != c.keep {
			t.Errorf("%s: keeps from %d, want %d", c.name, got, c.keep)
		}
	}
}

// What cannot be read past ends it: it is told which record it was.
func TestUnreadable(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p := newPart(group, 4, bounds{7, 7})
	_, err := p.apply([]*kgo.Record{record(t, 7), {Offset: 8, Value: []byte{1, 77}}})
	if !errors.Is(err, entry.ErrVersion) || err.Error()[:len("at offset 8 of partition 4")] != "at offset 8 of partition 4" {
		t.Error(err)
	}
}

// A start that was asked for before the log had to be begun anew settles nothing
// in it, though its log may reach as far.
func TestStartOfTheLogBefore(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p := newPart("g", 0, bounds{0, 0})
	for offset := range int64(3) {
		if _, err := p.apply([]*kgo.Record{record(t, offset)}); err != nil {
			t.Fatal(err)
		}
	}
	before := p.asked()
	p.lose()
	if how, _, err := p.settle("g", bounds{0, 2}); how != anew || err != nil {
		t.Fatalf("how %v, %v", how, err)
	}
	for offset := range int64(2) {
		if _, err := p.apply([]*kgo.Record{record(t, offset)}); err != nil {
			t.Fatal(err)
		}
	}
	src := [16]byte{1}
	verdict := func() index.Verdict {
		out := make([]index.Verdict, 1)
		if said, _ := p.look([]Position{{TopicID: src}}, out); !said {
			t.Fatal("nothing can be said")
		}
		return out[0]
	}
	p.started(before, src, 0, 2)
	if v := verdict(); v != index.Unsure {
		t.Errorf("told the start of the time before: %v, want unsure", v)
	}
	p.started(p.asked(), src, 0, 2)
	if v := verdict(); v != index.Fresh {
		t.Errorf("told one that was asked for since: %v, want fresh", v)
	}
}
