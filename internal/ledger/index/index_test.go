package index

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

var (
	topic = [16]byte{1}
	other = [16]byte{2}
)

// script feeds an Index, offset by offset.
type script struct {
	t *testing.T
	*Index
}

// begin is an index in generation 1, at offset 1.
func begin(t *testing.T) script {
	s := script{t, New("g", 3, 0)}
	return s.gen(1, entry.Active)
}

func (s script) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s script) gen(n int64, p entry.Phase) script {
	s.t.Helper()
	s.must(s.Generation(s.Next(), entry.Generation{Number: n, Phase: p, Guarantee: "ledger", Group: "g"}))
	return s
}

// entry tells an entry of (id, epoch) in generation 1 and returns where it is.
func (s script) entry(id int64, epoch int16, rs ...entry.Range) int64 {
	s.t.Helper()
	return s.entryOf(1, topic, id, epoch, rs...)
}

func (s script) entryOf(generation int64, topic [16]byte, id int64, epoch int16, rs ...entry.Range) int64 {
	s.t.Helper()
	at := s.Next()
	s.must(s.Entry(at, Producer{id, epoch}, entry.Entry{
		Generation: generation, TransactionalID: fmt.Sprintf("id-%d", id), TopicID: topic, Partition: 3, Ranges: rs,
	}))
	return at
}

// end tells the marker of the transaction (id, epoch).
func (s script) end(id int64, epoch int16, commit bool) {
	s.t.Helper()
	s.must(s.Marker(s.Next(), Producer{id, epoch + 1}, commit))
}

// looks compares the verdicts on the offsets from 0 on with their first letters:
// F, D, O, B, U.
func (s script) looks(want string) {
	s.t.Helper()
	var got strings.Builder
	for offset := range int64(len(want)) {
		got.WriteString(strings.ToUpper(s.Look(topic, offset).String()[:1]))
	}
	if got.String() != want {
		s.t.Errorf("verdicts from offset 0: %s, want %s", got.String(), want)
	}
}

func (s script) decides(at, id int64, epoch int16, want Decision) {
	s.t.Helper()
	if got := s.Decide(at, Producer{id, epoch}); !reflect.DeepEqual(got, want) {
		s.t.Errorf("entry at %d of %d/%d: %v, want %v", at, id, epoch, got, want)
	}
}

func ranges(bounds ...int64) (rs []entry.Range) {
	for i := 0; i < len(bounds); i += 2 {
		rs = append(rs, entry.Range{First: bounds[i], Last: bounds[i+1]})
	}
	return rs
}

func conflict(done, open, below, unsure []entry.Range) Decision {
	return Decision{Kind: Conflict, Done: done, Open: open, Below: below, Unsure: unsure}
}

var commits = Decision{Kind: Commit}

func TestLook(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	s := begin(t)
	s.looks("FFFFFFFF")
	s.entry(10, 0, ranges(1, 2, 4, 4)...)
	s.looks("FOOFOFFF")
	s.end(10, 0, true)
	s.looks("FDDFDFFF")
	s.entry(10, 1, ranges(0, 0)...)
	s.end(10, 1, false)
	s.looks("FDDFDFFF")
	// An entry over what is done changes nothing there.
	s.entry(11, 5, ranges(2, 3)...)
	s.looks("FDDODFFF")
	s.Start(topic, 2, s.Next(), s.Next())
	s.looks("BBDODFFF")
	s.end(11, 5, true)
	s.looks("BBDDDFFF")
	if v := s.Look(other, 1); v != Fresh {
		t.Errorf("of another topic: %v", v)
	}
	s.entryOf(1, other, 12, 0, ranges(0, 0)...)
	s.looks("BBDDDFFF")
	if v := s.Look(other, 0); v != Open {
		t.Errorf("of another topic, in one ledger partition: %v", v)
	}
}

func TestDecide(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		name  string
		steps func(s script) (at int64)
		want  Decision
	}{
		{"alone", func(s script) int64 { return s.entry(1, 0, ranges(0, 9)...) }, commits},
		{"over an aborted one", func(s script) int64 {
			s.entry(2, 0, ranges(0, 9)...)
			at := s.entry(1, 0, ranges(0, 9)...)
			s.end(2, 0, false)
			return at
		}, commits},
		{"beside others", func(s script) int64 {
			s.entry(2, 0, ranges(0, 3, 7, 9)...)
			s.entryOf(1, other, 3, 0, ranges(4, 6)...)
			return s.entry(1, 0, ranges(4, 6)...)
		}, commits},
		{"a later one", func(s script) int64 {
			at := s.entry(1, 0, ranges(0, 9)...)
			s.entry(2, 0, ranges(0, 9)...)
			return at
		}, commits},
		{"several entries of one transaction", func(s script) int64 {
			s.entry(1, 0, ranges(0, 3)...)
			return s.entry(1, 0, ranges(4, 9)...)
		}, commits},
		{"done", func(s script) int64 {
			s.entry(2, 0, ranges(1, 2, 5, 6)...)
			s.end(2, 0, true)
			return s.entry(1, 0, ranges(0, 1, 3, 5)...)
		}, conflict(ranges(1, 1, 5, 5), nil, nil, nil)},
		{"done, decided after it was written", func(s script) int64 {
			s.entry(2, 0, ranges(1, 2)...)
			at := s.entry(1, 0, ranges(0, 9)...)
			s.end(2, 0, true)
			return at
		}, conflict(ranges(1, 2), nil, nil, nil)},
		{"open", func(s script) int64 {
			s.entry(2, 0, ranges(1, 2, 5, 6)...)
			return s.entry(1, 0, ranges(2, 5)...)
		}, conflict(nil, ranges(2, 2, 5, 5), nil, nil)},
		{"done by the transaction before of the same producer id", func(s script) int64 {
			s.entry(1, -1, ranges(1, 2)...)
			s.end(1, -1, true)
			return s.entry(1, 0, ranges(1, 7)...)
		}, conflict(ranges(1, 2), nil, nil, nil)},
		{"below", func(s script) int64 {
			at := s.entry(1, 0, ranges(2, 5)...)
			s.Start(topic, 4, s.Next(), s.Next())
			return at
		}, conflict(nil, nil, ranges(2, 3), nil)},
		{"all at once", func(s script) int64 {
			s.entry(2, 0, ranges(2, 3)...)
			s.end(2, 0, true)
			s.entry(3, 0, ranges(5, 5)...)
			at := s.entry(1, 0, ranges(0, 9)...)
			s.Start(topic, 1, s.Next(), s.Next())
			return at
		}, conflict(ranges(2, 3), ranges(5, 5), ranges(0, 0), nil)},
		{"not read yet", func(s script) int64 { return s.Next() }, Decision{Kind: Unread}},
		{"of another transaction", func(s script) int64 { return s.entry(2, 0, ranges(0, 0)...) }, Decision{Kind: Ended}},
		{"of another epoch", func(s script) int64 { return s.entry(1, 4, ranges(0, 0)...) }, Decision{Kind: Ended}},
		{"ended by somebody else", func(s script) int64 {
			at := s.entry(1, 0, ranges(0, 0)...)
			s.end(1, 0, false)
			return at
		}, Decision{Kind: Ended}},
		{"in a gap", func(s script) int64 {
			at := s.entry(1, 0, ranges(0, 0)...)
			s.must(s.Gap(s.Next() + 5))
			return at
		}, Decision{Kind: Ended}},
		{"the next generation", func(s script) int64 {
			at := s.entry(1, 0, ranges(0, 0)...)
			s.gen(2, entry.Active)
			return at
		}, Decision{Kind: Stale}},
		{"written after the next generation", func(s script) int64 {
			s.gen(2, entry.Active)
			return s.entry(1, 0, ranges(0, 0)...)
		}, Decision{Kind: Stale}},
		{"a reset began", func(s script) int64 {
			at := s.entry(1, 0, ranges(0, 0)...)
			s.gen(2, entry.Resetting)
			return at
		}, Decision{Kind: Stale}},
		{"an older generation's copy", func(s script) int64 {
			s.gen(2, entry.Active)
			at := s.entryOf(2, topic, 1, 0, ranges(0, 0)...)
			s.gen(1, entry.Active)
			return at
		}, commits},
		{"over an older generation's", func(s script) int64 {
			s.entry(2, 0, ranges(0, 0)...)
			s.entry(3, 0, ranges(1, 1)...)
			s.end(3, 0, true)
			s.gen(2, entry.Active)
			at := s.entryOf(2, topic, 1, 0, ranges(0, 1)...)
			s.end(2, 0, true)
			return at
		}, commits},
		{"two writers of the generation", func(s script) int64 {
			at := s.entry(1, 0, ranges(0, 0)...)
			s.must(s.Generation(s.Next(), entry.Generation{Number: 1, Phase: entry.Active, Guarantee: "staged", Group: "g"}))
			return at
		}, Decision{Kind: Stale}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := begin(t)
			s.decides(c.steps(s), 1, 0, c.want)
		})
	}
}

// A transaction is decided by the marker of its own epoch's successor alone.
func TestMarkers(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	s := begin(t)
	s.entry(1, 7, ranges(0, 0)...)
	s.end(1, 7, true)
	s.entry(1, 8, ranges(1, 1)...)
	s.end(1, 7, true) // written again by a coordinator that lost the answer
	s.end(1, 3, true)
	s.end(2, 7, true)
	s.looks("DO")
	if st := s.Stats(); st.Strays != 2 {
		t.Errorf("%d strays, want 2", st.Strays)
	}
	s.end(1, 8, false)
	s.looks("DF")
	// Several entries of one transaction are decided at once, with the others of
	// their topic untouched.
	s.entry(1, 9, ranges(1, 1)...)
	s.entry(2, 0, ranges(2, 2)...)
	s.entry(1, 9, ranges(3, 3)...)
	s.looks("DOOO")
	s.end(1, 9, true)
	s.looks("DDOD")
	// The last epoch that a producer id has.
	s.entry(3, math.MaxInt16-1, ranges(4, 4)...)
	s.end(3, math.MaxInt16-1, true)
	s.looks("DDODD")
}

func TestRefuses(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	e := entry.Entry{Generation: 1, TransactionalID: "id", TopicID: topic, Partition: 3, Ranges: ranges(0, 0)}
	misplaced := e
	misplaced.Partition = 4
	g := entry.Generation{Number: 1, Phase: entry.Active, Guarantee: "ledger", Group: "g"}
	foreign := g
	foreign.Group = "h"
	for _, c := range []struct {
		name string
		tell func(s script) error
		want error
	}{
		{"entry skipped", func(s script) error { return s.Entry(2, Producer{1, 0}, e) }, &ContinuityError{3, 1, 2}},
		{"entry repeated", func(s script) error { return s.Entry(0, Producer{1, 0}, e) }, &ContinuityError{3, 1, 0}},
		{"marker skipped", func(s script) error { return s.Marker(2, Producer{1, 0}, true) }, &ContinuityError{3, 1, 2}},
		{"generation skipped", func(s script) error { return s.Generation(2, g) }, &ContinuityError{3, 1, 2}},
		{"other skipped", func(s script) error { return s.Other(2) }, &ContinuityError{3, 1, 2}},
		{"gap backwards", func(s script) error { return s.Gap(0) }, &ContinuityError{3, 1, 0}},
		{"entry of another partition", func(s script) error { return s.Entry(1, Producer{1, 0}, misplaced) }, &MisplacedError{3, 1, 4, "id"}},
		{"generation of another group", func(s script) error { return s.Generation(1, foreign) }, &GroupError{3, 1, "h", "g"}},
		{"entry without a marker before", func(s script) error {
			s.entry(1, 0, ranges(5, 5)...)
			return s.Entry(2, Producer{1, 1}, e)
		}, &EpochError{3, 2, 1, 0, 1, false}},
		{"abort of an even distance", func(s script) error {
			s.entry(1, 0, ranges(5, 5)...)
			return s.Marker(2, Producer{1, 2}, false)
		}, &EpochError{3, 2, 1, 0, 2, true}},
		{"abort of a later even distance", func(s script) error {
			s.entry(1, 0, ranges(5, 5)...)
			return s.Marker(2, Producer{1, 4}, false)
		}, &EpochError{3, 2, 1, 0, 4, true}},
		{"marker of a later epoch, nothing open", func(s script) error { return s.Marker(1, Producer{1, 9}, false) }, nil},
	} {
		if err := c.tell(begin(t)); !reflect.DeepEqual(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		} else if err != nil && !strings.Contains(err.Error(), "ledger partition 3") {
			t.Errorf("%s: %q does not say where", c.name, err)
		}
	}
}

// A marker that was lost is repaired by one further ahead, which decides the
// transaction and no other; an abort that is none of a repair names what it may
// have hidden.
func TestLostMarkers(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for name, c := range map[string]struct {
		epoch  int16 // of the marker
		commit bool
		want   string
	}{
		"commit, repaired at once":    {2, true, "DF"},
		"commit, at the second try":   {4, true, "DF"},
		"commit, after another epoch": {3, true, "DF"},
		"abort, repaired at once":     {3, false, "FF"},
		"abort, at the second try":    {5, false, "FF"},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t)
			s.entry(1, 0, ranges(0, 0)...)
			s.entry(2, 0, ranges(1, 1)...)
			s.looks("OO")
			s.must(s.Marker(s.Next(), Producer{1, c.epoch}, c.commit))
			s.looks(c.want[:1] + "O")
			s.end(2, 0, false)
			s.looks(c.want)
			s.entry(1, c.epoch, ranges(0, 0)...) // the next transaction is one like any other
			s.end(1, c.epoch, true)
			s.looks("DF")
		})
	}
	hidden := &EpochError{3, 2, 1, 0, 2, true}
	for _, part := range []string{"an abort of producer 1", "Kafka 4.4.0", "ledger reset", "replication factor"} {
		if !strings.Contains(hidden.Error(), part) {
			t.Errorf("%q does not say %q", hidden, part)
		}
	}
}

// What a gap leaves in doubt is settled by a start that was read after it, once
// the log is read up to where it ended then, and names its generation again.
func TestGap(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	s := begin(t)
	s.entry(1, 0, ranges(0, 1)...)
	s.end(1, 0, true)
	s.entry(2, 0, ranges(2, 2)...)
	before := s.Next()
	s.must(s.Gap(20))
	if s.Next() != 20 {
		t.Fatalf("goes on at %d", s.Next())
	}
	// What is done stays done; what was open is in doubt, as everything is.
	s.looks("DDUUUU")
	if v := s.Look(other, 0); v != Unsure {
		t.Errorf("of a topic never seen: %v", v)
	}
	own := s.entry(5, 0, ranges(1, 5)...)
	s.decides(own, 5, 0, conflict(ranges(1, 1), nil, nil, ranges(2, 5)))
	s.looks("DDOOOO")
	s.Start(topic, 1, before, 10)
	s.looks("BDOOOO") // read before the gap: it settles nothing
	s.decides(own, 5, 0, conflict(ranges(1, 1), nil, nil, ranges(2, 5)))
	s.Start(topic, 4, 20, 23)
	s.decides(own, 5, 0, conflict(nil, nil, ranges(1, 3), ranges(4, 5)))
	s.must(s.Other(s.Next()))
	s.must(s.Other(s.Next()))
	s.decides(own, 5, 0, conflict(nil, nil, ranges(1, 3), ranges(4, 5))) // read to the end, no generation
	if _, err := s.Current(); !errors.Is(err, ErrNoGeneration) {
		t.Errorf("the generation after the gap: %v", err)
	}
	s.gen(1, entry.Active)
	s.decides(own, 5, 0, conflict(nil, nil, ranges(1, 3), nil))
	s.looks("BBBBOOF")
	if v := s.Look(other, 0); v != Unsure {
		t.Errorf("of a topic whose start was not told: %v", v)
	}
	// Another end does not put it in doubt again, and an earlier one would do.
	s.Start(topic, 4, s.Next(), s.Next()+100)
	s.looks("BBBBOOF")
	s.Start(other, -1, s.Next(), s.Next())
	if v := s.Look(other, 0); v != Fresh {
		t.Errorf("of a topic that has no start yet: %v", v)
	}
	// The next gap puts all in doubt again.
	s.must(s.Gap(s.Next()))
	s.looks("BBBBUUU")
}

// Sooner or later a start whose end is read comes: a later one with a later end
// does not replace it.
func TestStartEndsDoNotRunAhead(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	s := begin(t)
	s.must(s.Gap(10))
	s.Start(topic, 0, 10, 12)
	s.gen(1, entry.Active)
	s.Start(topic, 0, 11, 13)
	s.looks("U")
	s.must(s.Other(11))
	s.looks("F")
}

// A start of the time before a generation says nothing in it, nor one that was
// read while the offsets were being set.
func TestStartOfAnotherGeneration(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	s := begin(t)
	s.entry(1, 0, ranges(3, 3)...)
	s.end(1, 0, true)
	s.Start(topic, 2, 1, 1)
	s.looks("BBFD")
	if f := s.Floor(topic); f != 2 {
		t.Errorf("floor %d", f)
	}
	s.Start(topic, 1, 1, 1) // starts do not fall
	s.looks("BBFD")
	s.gen(2, entry.Resetting)
	s.looks("FFFF")
	s.Start(topic, 2, s.Next(), s.Next())
	s.looks("FFFF")
	during := s.Next()
	s.gen(2, entry.Active)
	s.Start(topic, 2, during, s.Next())
	s.looks("FFFF")
	if f := s.Floor(topic); f != -1 {
		t.Errorf("floor %d", f)
	}
	s.Start(topic, 1, s.Next(), s.Next())
	s.looks("BFFF")
	// An entry of the next generation is as good as its record.
	s.entryOf(3, topic, 7, 0, ranges(1, 1)...)
	s.looks("FOFF")
	s.Start(topic, 1, s.Next()-1, s.Next())
	s.looks("FOFF")
	s.Start(topic, 1, s.Next(), s.Next())
	s.looks("BOFF")
	if _, err := s.Current(); !errors.Is(err, ErrNoGeneration) {
		t.Errorf("generation 3, of which only an entry was read: %v", err)
	}
	if k := s.Keep(); k != 0 {
		t.Errorf("the log may be deleted below %d, and nobody knows its generation", k)
	}
}

func TestCurrent(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	s := script{t, New("g", 3, 40)}
	if _, err := s.Current(); !errors.Is(err, ErrNoGeneration) {
		t.Errorf("before a record was read: %v", err)
	}
	s.gen(2, entry.Resetting)
	is := func(n int64, p entry.Phase) {
		t.Helper()
		if g, err := s.Current(); err != nil || g.Number != n || g.Phase != p {
			t.Errorf("%+v, %v; want %d, %v", g, err, n, p)
		}
	}
	is(2, entry.Resetting)
	s.gen(2, entry.Active)
	is(2, entry.Active)
	s.gen(1, entry.Active)
	s.gen(2, entry.Resetting) // late copies
	is(2, entry.Active)
	s.must(s.Generation(s.Next(), entry.Generation{Number: 2, Phase: entry.Active, Guarantee: "staged", Group: "g"}))
	clash, ok := errors.AsType[*ClashError](func() error { _, err := s.Current(); return err }())
	if !ok || clash.Number != 2 || clash.Guarantees != [2]string{"ledger", "staged"} {
		t.Errorf("two guarantees: %v", clash)
	}
	if k := s.Keep(); k != 0 {
		t.Errorf("the log may be deleted below %d, and nobody knows its guarantee", k)
	}
	s.gen(3, entry.Active)
	is(3, entry.Active)
}

func TestKeep(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	s := begin(t)
	keeps := func(want int64) {
		t.Helper()
		if got := s.Keep(); got != want {
			t.Errorf("keeps from %d on, want %d", got, want)
		}
	}
	could := func(want int64) {
		t.Helper()
		if got := s.Deletable(); got != want {
			t.Errorf("with a new record it would keep from %d on, want %d", got, want)
		}
	}
	keeps(0)
	could(1)
	aborted := s.entry(1, 0, ranges(0, 1)...)
	first := s.entry(2, 0, ranges(0, 1)...)
	s.end(1, 0, false)
	s.gen(1, entry.Active) // a truncation's copy
	copied := s.Next() - 1
	keeps(first)
	could(first)
	s.end(2, 0, true)
	keeps(first)
	open := s.entry(3, 0, ranges(2, 2)...)
	s.Start(topic, 1, s.Next(), s.Next())
	keeps(first) // not wholly below
	s.Start(topic, 2, s.Next(), s.Next())
	keeps(copied) // never beyond the generation's record
	could(open)
	s.gen(1, entry.Active)
	keeps(open)
	s.Start(topic, 3, s.Next(), s.Next())
	keeps(open) // undecided, though below
	later := s.entryOf(1, other, 4, 0, ranges(0, 0)...)
	s.end(3, 0, true)
	s.end(4, 0, true)
	s.gen(1, entry.Active)
	keeps(later) // of another topic, whose start is not known
	s.Start(other, math.MaxInt64, s.Next(), s.Next())
	keeps(s.Next() - 1) // which does not exist any more
	if aborted >= first {
		t.Fatal("the aborted one must lie before")
	}
	s.entry(5, 0, ranges(9, 9)...)
	s.gen(2, entry.Active)
	keeps(s.Next() - 1) // entries of an older generation do not hold it
	s.end(5, 0, true)
	keeps(s.Next() - 2)
}

func TestStats(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	s := begin(t)
	if st := s.Stats(); st != (Stats{}) {
		t.Errorf("empty: %+v", st)
	}
	s.entry(1, 0, ranges(0, 1, 5, 5)...)
	s.entry(2, 0, ranges(2, 2)...)
	first := s.entry(3, 6, ranges(7, 7)...)
	s.entry(4, 0, ranges(8, 8)...)
	s.end(1, 0, true)
	s.end(2, 0, true)
	want := Stats{Open: 2, Committed: 2, Spans: 2, OldestOpen: &OpenEntry{first, Producer{3, 6}, "id-3"}}
	if st := s.Stats(); !reflect.DeepEqual(st, want) {
		t.Errorf("%+v, want %+v", st, want)
	}
	s.Start(topic, 6, s.Next(), s.Next())
	want.Committed, want.Spans = 0, 0
	if st := s.Stats(); !reflect.DeepEqual(st, want) {
		t.Errorf("%+v, want %+v", st, want)
	}
}

func TestWords(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	var all []string
	for v := range Below + 2 {
		all = append(all, v.String())
	}
	for k := range Stale + 2 {
		all = append(all, k.String())
	}
	all = append(all, Decision{Kind: Commit}.String(), conflict(ranges(1, 2), nil, nil, ranges(4, 4)).String())
	want := []string{"unsure", "fresh", "done", "open", "below", "Verdict(5)", "unread", "commit", "conflict", "ended", "stale", "Kind(5)",
		"commit", "conflict: done [1-2], open [], below [], unsure [4]"}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("%q\nwant %q", all, want)
	}
}
