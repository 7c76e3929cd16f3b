package verify

import (
	"maps"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// step is what a reader comes by: a record, or a marker of its producer.
type step struct {
	partition int32
	txn       Txn
	offset    int64
	marker    bool
	commit    bool
}

func data(partition int32, producer int64, epoch int16, offset int64) step {
	return step{partition: partition, txn: Txn{producer, epoch}, offset: offset}
}

func marker(partition int32, producer int64, commit bool) step {
	return step{partition: partition, txn: Txn{Producer: producer}, marker: true, commit: commit}
}

func read(steps []step) *Logs {
	l := NewLogs()
	for _, s := range steps {
		p := Part{"out", s.partition}
		if s.marker {
			l.Marker(p, s.txn.Producer, s.commit)
		} else {
			l.Data(p, s.txn, s.offset, []byte{1})
		}
	}
	return l
}

func TestLogs(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		name    string
		steps   []step
		records int // committed, in partition 0
		want    map[Fault]int
		live    map[Fault]int // for a reader of the committed
	}{
		{"two that commit, one after the other", []step{data(0, 1, 0, 0), data(1, 1, 0, 0), marker(0, 1, true), data(0, 1, 1, 2), marker(1, 1, true), marker(0, 1, true)}, 2, nil, nil},
		{"two at once", []step{data(0, 1, 0, 0), data(0, 2, 0, 1), data(0, 1, 0, 2), marker(0, 2, false), marker(0, 1, true)}, 2, nil, map[Fault]int{Retracted: 1}},
		{"one that aborts and its next", []step{data(0, 1, 0, 0), marker(0, 1, false), data(0, 1, 1, 2), marker(0, 1, true)}, 1, nil, map[Fault]int{Retracted: 1}},
		{"ends in two ways", []step{data(0, 1, 0, 0), data(1, 1, 0, 0), marker(0, 1, true), marker(1, 1, false)}, 1, map[Fault]int{Torn: 1}, map[Fault]int{Torn: 1}},
		{"goes on after its end", []step{data(0, 1, 0, 0), marker(0, 1, true), data(0, 1, 0, 2), marker(0, 1, false)}, 1, map[Fault]int{Torn: 1}, map[Fault]int{Torn: 1}},
		{"no end in one partition", []step{data(0, 1, 0, 0), data(1, 1, 0, 0), marker(0, 1, true)}, 1, map[Fault]int{Torn: 1}, map[Fault]int{Torn: 1}},
		{"the next without an end of the first", []step{data(0, 1, 0, 0), data(0, 1, 1, 1), marker(0, 1, true)}, 2, map[Fault]int{Torn: 1}, map[Fault]int{Torn: 1}},
		{"a marker of nothing", []step{marker(0, 1, false), data(0, 1, 1, 1), marker(0, 1, true)}, 1, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := read(c.steps)
			if n := l.Sums()[Part{"out", 0}].Records; n != c.records {
				t.Errorf("%d records committed, want %d", n, c.records)
			}
			for onlyCommitted, want := range map[bool]map[Fault]int{false: c.want, true: c.live} {
				var v Verdict
				if l.judge(&v, onlyCommitted); !maps.Equal(v.Counts, want) {
					t.Errorf("only committed %v: %v, want %v\n%v", onlyCommitted, v.Counts, want, &v)
				}
			}
		})
	}
}

func TestSame(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	sound := []step{data(0, 1, 0, 0), data(0, 1, 0, 1), data(1, 1, 0, 0), marker(0, 1, true), marker(1, 1, true)}
	for name, c := range map[string]struct {
		other []step
		want  int
	}{
		"the same in another order": {[]step{data(1, 1, 0, 0), marker(1, 1, true), data(0, 1, 0, 0), data(0, 1, 0, 1), marker(0, 1, true)}, 0},
		"one less":                  {sound[1:], 1},
		"one at another offset":     {append([]step{data(0, 1, 0, 7)}, sound[1:]...), 1},
		"nothing of a partition":    {[]step{sound[0], sound[1], sound[3]}, 1},
		"aborted":                   {append(append([]step(nil), sound[:4]...), marker(1, 1, false)), 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, turn := range [][2][]step{{sound, c.other}, {c.other, sound}} {
				var v Verdict
				same(&v, read(turn[0]).Sums(), read(turn[1]).Sums(), "test")
				if v.Counts[Retracted] != c.want {
					t.Errorf("%v, want %d", &v, c.want)
				}
			}
		})
	}
}
