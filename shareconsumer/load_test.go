package shareconsumer

import (
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestPartsKeepOrder(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	var p part
	for _, o := range []int64{4, 5, 9, 1, 7} {
		p.add(o, acks.Accept)
	}
	p.add(10, acks.Reject)
	want := []acks.Run{{First: 1, Last: 1, Type: 1}, {First: 4, Last: 5, Type: 1}, {First: 7, Last: 7, Type: 1}, {First: 9, Last: 9, Type: 1}, {First: 10, Last: 10, Type: 3}}
	if !slices.Equal(p.runs, want) {
		t.Fatalf("%v", p.runs)
	}
}

// No request names an offset twice: what would has to wait for the next one.
func TestLoadNamesNoOffsetTwice(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	run := func(first, last int64) acks.Run { return acks.Run{First: first, Last: last, Type: acks.Accept} }
	tp := func(n int32) acks.TopicIDPartition { return acks.TopicIDPartition{TopicID: [16]byte{1}, Partition: n} }
	of := func(n int32, runs ...acks.Run) *piece { return &piece{parts: []part{{tp(n), runs}}} }
	for name, c := range map[string]struct {
		pieces []*piece
		taken  []bool
		runs   []acks.Run // of partition 0
	}{
		"side by side":        {[]*piece{of(0, run(1, 2)), of(0, run(3, 4))}, []bool{true, true}, []acks.Run{run(1, 2), run(3, 4)}},
		"the second in front": {[]*piece{of(0, run(5, 6)), of(0, run(1, 2))}, []bool{true, true}, []acks.Run{run(1, 2), run(5, 6)}},
		"interleaved":         {[]*piece{of(0, run(1, 1), run(5, 5)), of(0, run(3, 3), run(7, 7))}, []bool{true, true}, []acks.Run{run(1, 1), run(3, 3), run(5, 5), run(7, 7)}},
		"the same offset":     {[]*piece{of(0, run(1, 5)), of(0, run(5, 9)), of(0, run(6, 9))}, []bool{true, false, true}, []acks.Run{run(1, 5), run(6, 9)}},
		"inside":              {[]*piece{of(0, run(1, 9)), of(0, run(3, 3))}, []bool{true, false}, []acks.Run{run(1, 9)}},
		"other partitions":    {[]*piece{of(0, run(1, 5)), of(1, run(1, 5))}, []bool{true, true}, []acks.Run{run(1, 5)}},
		"nothing is left":     {[]*piece{of(0), of(0, run(1, 5))}, []bool{true, true}, []acks.Run{run(1, 5)}},
	} {
		var l load
		var taken []bool
		for _, p := range c.pieces {
			taken = append(taken, l.take(p))
		}
		if !slices.Equal(taken, c.taken) || !slices.Equal(l.part(keyOf(tp(0))).runs, c.runs) {
			t.Errorf("%s: taken %v, runs %v", name, taken, l.part(keyOf(tp(0))).runs)
		}
	}
}
