package task

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestTag(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, want := range []Tag{
		{1, At{"a.b-c_d", 3, 1 << 40}, 2, 0xfedcba9876543210},
		{Round: 2, At: At{Topic: "t"}},
	} {
		if got, err := Parse(want.Encode()); err != nil || got != want {
			t.Errorf("%+v is read as %+v, %v", want, got, err)
		}
	}
	for _, bad := range []string{"", "1 t 0 0 1", "1 t 0 0 1 ff x", "1 t -1 0 1 ff", "1 t 0 0 1 fg", "x t 0 0 1 ff"} {
		if got, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

// Each kind comes as often as asked for, values differ, and tell their kind.
func TestValues(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p := Poison{Reject: 100, Fail: 200, Kill: 500}
	kinds, outputs, digests := make(map[Kind]int), make(map[int]int), make(map[uint64]bool)
	const n = 1000
	for i := range n {
		v := p.Value(i)
		kinds[KindOf(v)]++
		outputs[Outputs(v)]++
		digests[Digest(v)] = true
	}
	if kinds[Reject] != 10 || kinds[Fail] != 5 || kinds[Kill] != 2 || kinds[Plain] != n-17 {
		t.Errorf("kinds %v", kinds)
	}
	if outputs[1] == 0 || outputs[2] == 0 || outputs[3] == 0 || len(outputs) != 3 {
		t.Errorf("outputs %v", outputs)
	}
	if len(digests) != n {
		t.Errorf("%d contents of %d", len(digests), n)
	}
	p.Kills = 1
	if first, second := KindOf(p.Value(250)), KindOf(p.Value(750)); first != Kill || second != Plain {
		t.Errorf("of one that kills the first is %c, the second %c", first, second)
	}
	if k := KindOf((Poison{}).Value(7)); k != Plain {
		t.Errorf("without poison: %c", k)
	}
	if k := KindOf([]byte{byte(Kill)}); k != Plain {
		t.Errorf("another's record: %c", k)
	}
}
