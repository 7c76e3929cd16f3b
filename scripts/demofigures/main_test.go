package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

const right = `{"input":1707,"accepted":1679,"alerts":85,"rejected":28,"duplicates":0,"missing":0,
	"lag":0,"transactions":171,"aborts":9,"seed":1,"profile":"draft95"}`

func TestCheck(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, tt := range []struct {
		name     string
		from, to string // replaced in the right figures
		want     []string
	}{
		{name: "right"},
		{name: "one lost", from: `"accepted":1679`, to: `"accepted":1678`, want: []string{"accepted is 1678, want 1679"}},
		{name: "one doubled", from: `"duplicates":0`, to: `"duplicates":1`, want: []string{"duplicates is 1, want 0"}},
		{name: "at the least", from: `"aborts":9`, to: `"aborts":5`},
		{name: "too few aborts", from: `"aborts":9`, to: `"aborts":4`, want: []string{"aborts is 4, want at least 5"}},
		{name: "absent", from: `"lag":0,`, to: ``, want: []string{"lag is absent"}},
		{name: "null", from: `"missing":0`, to: `"missing":null`, want: []string{"missing is null, not a whole number"}},
		{name: "text", from: `"input":1707`, to: `"input":"1707"`, want: []string{`input is "1707", not a whole number`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := strings.Replace(right, tt.from, tt.to, 1)
			if (in == right) != (tt.from == "") {
				t.Fatalf("%q is not in the right figures", tt.from)
			}
			got, err := check(strings.NewReader(in))
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for name, in := range map[string]string{
		"nothing":       "",
		"not an object": "[1707]",
		"cut off":       right[:40],
		"more after it": right + "{}",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := check(strings.NewReader(in)); err == nil {
				t.Errorf("taken, with complaints %q", got)
			}
		})
	}
}
