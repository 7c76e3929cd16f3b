package verify

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/chaos/task"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// story is a small trial: six source records, two rounds (the second from offset
// 3 on), as a sound history leaves it. Tests spoil it.
type story struct {
	values  [][]byte
	rounds  []Round
	visible []visible
	logged  map[delivery]counts
	written map[delivery]StateBatch // else what is below Through is acknowledged
	traces  []visible               // in the logs, and not visible
	cuts    int
}

type visible struct {
	tag task.Tag
	txn Txn
}

var part = Part{"in", 0}

// Record 2 is rejected, record 4 archived in the first round, with two deliveries
// that no member came to log.
func sound() *story {
	s := &story{
		rounds:  []Round{{Through: map[Part]int64{part: 6}}, {From: map[Part]int64{part: 3}, Through: map[Part]int64{part: 6}}},
		logged:  map[delivery]counts{{1, at(4)}: 1<<2 | 1<<5, {1, at(2)}: 1 << 2},
		written: map[delivery]StateBatch{{1, at(4)}: {State: Archived, Count: 5}},
		cuts:    2,
	}
	poison := task.Poison{Reject: 8}
	for n := range 6 {
		s.values = append(s.values, poison.Value(n))
	}
	for round := 1; round <= 2; round++ {
		for o := range s.values {
			if round == 2 && o < 3 || round == 1 && o == 4 {
				continue
			}
			s.publish(round, o)
		}
	}
	return s
}

func at(offset int) task.At { return task.At{Topic: part.Topic, Offset: int64(offset)} }

// publish adds all of a record's results, in a transaction of its own.
func (s *story) publish(round, offset int) {
	txn := Txn{7, int16(len(s.visible))}
	t := task.Tag{Round: round, At: at(offset), Digest: task.Digest(s.values[offset])}
	if task.KindOf(s.values[offset]) != task.Plain {
		s.visible = append(s.visible, visible{t, txn})
		return
	}
	for i := range task.Outputs(s.values[offset]) {
		t.Index = i + 1
		s.visible = append(s.visible, visible{t, txn})
	}
}

// of is where the results of an offset are in the first round.
func (s *story) of(offset int) (is []int) {
	for i, v := range s.visible {
		if v.tag.Round == 1 && v.tag.At.Offset == int64(offset) {
			is = append(is, i)
		}
	}
	return is
}

func (s *story) drop(offset int) {
	s.visible = slices.DeleteFunc(s.visible, func(v visible) bool { return v.tag.Round == 1 && v.tag.At.Offset == int64(offset) })
}

func (s *story) verdict() *Verdict {
	j := NewJudge(Terms{Limit: 5, Cuts: s.cuts, Written: s.last}, s.rounds...)
	for _, v := range s.values {
		j.Source(part, v)
	}
	for d, all := range s.logged {
		for n := range 64 {
			if all&(1<<n) != 0 {
				j.Delivered(d.round, d.at, n)
			}
		}
	}
	for _, v := range s.visible {
		j.Visible(v.tag, v.txn)
	}
	for _, v := range slices.Concat(s.visible, s.traces) {
		j.Trace(v.tag, v.txn)
	}
	return j.Verdict()
}

func (s *story) last(round int, p Part, offset int64) (Delivery, int) {
	if b, ok := s.written[delivery{round, task.At{Topic: p.Topic, Partition: p.Partition, Offset: offset}}]; ok {
		return b.State, b.Count
	}
	return Acknowledged, 1
}

// several is the offset of a plain record with more than one output.
func (s *story) several(t *testing.T) int {
	for o := range s.values {
		if len(s.of(o)) > 1 {
			return o
		}
	}
	t.Fatal("no record has several outputs")
	return 0
}

func TestJudge(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, s *story)
		want  map[Fault]int
	}{
		{"sound", func(*testing.T, *story) {}, nil},
		{"handled twice", func(_ *testing.T, s *story) { s.publish(1, 1) }, map[Fault]int{Duplicate: 1}},
		{"handled three times", func(_ *testing.T, s *story) { s.publish(1, 1); s.publish(1, 1) }, map[Fault]int{Duplicate: 1}},
		{"two of them", func(_ *testing.T, s *story) { s.publish(1, 0); s.publish(1, 5) }, map[Fault]int{Duplicate: 2}},
		{"twice in the second round", func(_ *testing.T, s *story) { s.publish(2, 5) }, map[Fault]int{Duplicate: 1}},
		{"one output twice in a transaction", func(_ *testing.T, s *story) { s.visible = append(s.visible, s.visible[s.of(1)[0]]) }, map[Fault]int{Duplicate: 1}},
		{"rejected twice", func(_ *testing.T, s *story) { s.publish(1, 2) }, map[Fault]int{Duplicate: 1}},
		{"handled and rejected", func(_ *testing.T, s *story) {
			v := s.visible[s.of(1)[0]]
			v.tag.Index = 0
			s.visible = append(s.visible, v)
		}, map[Fault]int{Duplicate: 1}},
		{"rejected and handled", func(_ *testing.T, s *story) {
			v := s.visible[s.of(1)[0]]
			v.tag.Index = 0
			s.visible = slices.Insert(s.visible, 0, v)
		}, map[Fault]int{Duplicate: 1}},
		{"a plain record rejected", func(_ *testing.T, s *story) {
			v := s.visible[s.of(1)[0]]
			v.tag.Index = 0
			s.drop(1)
			s.visible = append(s.visible, v)
		}, nil},
		{"lost", func(_ *testing.T, s *story) { s.drop(1) }, map[Fault]int{Missing: 1}},
		{"rejected and lost", func(_ *testing.T, s *story) { s.drop(2) }, map[Fault]int{Missing: 1}},
		{"archived, and one delivery more than cuts was not logged", func(_ *testing.T, s *story) { s.cuts = 1 }, map[Fault]int{Missing: 1}},
		{"archived, logged in another round", func(_ *testing.T, s *story) {
			s.logged = map[delivery]counts{{2, at(4)}: s.logged[delivery{1, at(4)}]}
		}, map[Fault]int{Missing: 1}},
		{"archived in another round", func(_ *testing.T, s *story) {
			s.written = map[delivery]StateBatch{{2, at(4)}: s.written[delivery{1, at(4)}]}
		}, map[Fault]int{Missing: 1}},
		{"archived before the limit", func(_ *testing.T, s *story) {
			s.written[delivery{1, at(4)}] = StateBatch{State: Archived, Count: 4}
			s.cuts = 9
		}, map[Fault]int{Missing: 1}},
		{"logged at every delivery, and acknowledged", func(_ *testing.T, s *story) {
			s.logged[delivery{1, at(4)}] = 0b111100
			s.written[delivery{1, at(4)}] = StateBatch{State: Acknowledged, Count: 5}
		}, map[Fault]int{Missing: 1}},
		{"given back at the last delivery, and no more", func(_ *testing.T, s *story) {
			s.written[delivery{1, at(4)}] = StateBatch{State: Available, Count: 5}
		}, map[Fault]int{Missing: 1}},
		{"visible and archived", func(_ *testing.T, s *story) {
			s.written[delivery{1, at(1)}] = StateBatch{State: Archived, Count: 5}
		}, nil},
		{"lost above what must be through", func(_ *testing.T, s *story) {
			s.drop(5)
			s.rounds[0].Through[part] = 5
		}, nil},
		{"twice above what must be through", func(_ *testing.T, s *story) {
			s.publish(1, 5)
			s.rounds[0].Through[part] = 5
		}, map[Fault]int{Duplicate: 1}},
		{"half of it", func(t *testing.T, s *story) {
			i := s.of(s.several(t))[0]
			s.visible = slices.Delete(s.visible, i, i+1)
		}, map[Fault]int{Partial: 1}},
		{"in two transactions", func(t *testing.T, s *story) { s.visible[s.of(s.several(t))[1]].txn.Epoch = 999 }, map[Fault]int{Split: 1}},
		{"other contents", func(_ *testing.T, s *story) { s.visible[s.of(1)[0]].tag.Digest++ }, map[Fault]int{Wrong: 1}},
		{"an output too many", func(_ *testing.T, s *story) {
			v := s.visible[s.of(1)[0]]
			v.tag.Index = 4
			s.visible = append(s.visible, v)
		}, map[Fault]int{Wrong: 1}},
		{"of no source record", func(_ *testing.T, s *story) {
			v := s.visible[s.of(1)[0]]
			v.tag.At.Offset = 6
			s.visible = append(s.visible, v)
		}, map[Fault]int{Wrong: 1}},
		{"of another partition", func(_ *testing.T, s *story) {
			v := s.visible[s.of(1)[0]]
			v.tag.At.Partition = 1
			s.visible = append(s.visible, v)
		}, map[Fault]int{Wrong: 1}},
		{"of no round", func(_ *testing.T, s *story) {
			v := s.visible[s.of(1)[0]]
			v.tag.Round = 3
			s.visible = append(s.visible, v)
		}, map[Fault]int{Wrong: 1}},
		{"below where its round began", func(_ *testing.T, s *story) { s.publish(2, 2) }, map[Fault]int{Wrong: 1}},
		{"an output of what is rejected", func(_ *testing.T, s *story) {
			i := s.of(2)[0]
			s.visible[i].tag.Index = 1
		}, map[Fault]int{Wrong: 1, Missing: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sound()
			c.spoil(t, s)
			if v := s.verdict(); !maps.Equal(v.Counts, c.want) {
				t.Errorf("got %v, want %v\n%v", v.Counts, c.want, v)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	s := sound()
	outputs := 0
	for _, v := range s.visible {
		if v.tag.Index > 0 {
			outputs++
		}
	}
	v := s.verdict()
	archived := []Archive{{At: at(4), Round: 1, Kind: task.Plain, Logged: 1<<2 | 1<<5, Unseen: 2}}
	if v.Sources != 6 || v.Outputs != outputs || v.Rejected != 1 || v.Healthy != 0 || !slices.Equal(v.Archived, archived) ||
		!maps.Equal(v.Written, map[Delivery]int{Acknowledged: 8, Archived: 1}) {
		t.Errorf("%+v", v)
	}
	// One of the plain ones at its last delivery.
	s = sound()
	dead := s.visible[s.of(1)[0]]
	dead.tag.Index = 0
	s.drop(1)
	s.visible = append(s.visible, dead)
	if v := s.verdict(); v.Rejected != 2 || v.Healthy != 1 {
		t.Errorf("%+v", v)
	}
}

// What is missing is told with all that is known of it, so that each way to lose a
// record is told from every other.
func TestMissing(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	said := make(map[string]string)
	for name, b := range map[string]StateBatch{
		"archived at the limit":  {State: Archived, Count: 5},
		"archived before it":     {State: Archived, Count: 3},
		"acknowledged":           {State: Acknowledged, Count: 5},
		"given back":             {State: Available, Count: 5},
		"nothing is known of it": {State: Unknown},
	} {
		s := sound()
		s.drop(1)
		s.cuts = 0
		s.drop(4)
		s.logged[delivery{1, at(4)}] = 0b111100
		s.logged[delivery{1, at(1)}] = 1 << 3
		s.written[delivery{1, at(1)}] = b
		tag := task.Tag{Round: 1, At: at(1), Index: 1}
		s.traces = []visible{{tag, Txn{8, 1}}, {tag, Txn{8, 1}}, {tag, Txn{9, 4}}}
		v := s.verdict()
		if len(v.Findings) != 1 || v.Findings[0].Where != at(1).String() {
			t.Fatalf("%s: %v", name, v)
		}
		what := v.Findings[0].What
		for _, want := range []string{b.State.String(), "logged: [3]", "[8:1 9:4]"} {
			if !strings.Contains(what, want) {
				t.Errorf("%s: %q does not tell %q", name, what, want)
			}
		}
		why, _, _ := strings.Cut(what, "(")
		if of, ok := said[why]; ok && b.State != Available && b.State != Unknown {
			t.Errorf("%s is told as %s: %q", name, of, why)
		}
		said[why] = name
	}
	if len(said) != 4 {
		t.Errorf("%d ways to lose a record: %v", len(said), said)
	}
}
