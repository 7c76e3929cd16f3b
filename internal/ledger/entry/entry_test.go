package entry

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

func sample() Entry {
	return Entry{
		Generation: 3, TransactionalID: "orders-host-0", Nonce: [16]byte{1, 2, 3}, TopicID: [16]byte{0xaa, 15: 0xbb}, Partition: 7,
		Ranges: []Range{{0, 0}, {2, 300}, {301, 301}, {1 << 40, 1<<40 + 5}},
	}
}

// What stands in logs must stay readable: these bytes are never changed, a new
// version gets new ones.
var golden = []struct {
	name, value string
	want        Parsed
}{
	{
		"v1 entry",
		"0101" + "03" + "0d6f72646572732d686f73742d30" + "01020300000000000000000000000000" + "aa0000000000000000000000000000bb" + "07" +
			"04" + "0000" + "01aa02" + "0000" + "d2fdffffff1f05",
		Parsed{Entry: ptr(sample())},
	},
	{
		"v1 active generation",
		"0102" + "01" + "066c6564676572" + "01" + "00" + "026731",
		Parsed{Generation: &Generation{Number: 1, Guarantee: "ledger", Phase: Active, Group: "g1"}},
	},
	{
		"v1 resetting generation",
		"0102" + "ac02" + "06737461676564" + "02" + "03" + "026731",
		Parsed{Generation: &Generation{Number: 300, Guarantee: "staged", Phase: Resetting, ResetTo: -2, Group: "g1"}},
	},
}

func ptr[T any](v T) *T { return &v }

func TestGolden(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, g := range golden {
		value, err := hex.DecodeString(g.value)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(value)
		if err != nil || !reflect.DeepEqual(got, g.want) {
			t.Errorf("%s: parsed %+v, %v; want %+v", g.name, got, err, g.want)
		}
		if written := appendParsed(t, g.want); !bytes.Equal(written, value) {
			t.Errorf("%s: written as\n%x, want\n%x", g.name, written, value)
		}
	}
}

func appendParsed(t *testing.T, p Parsed) []byte {
	t.Helper()
	var b []byte
	var err error
	switch {
	case p.Entry != nil && p.Generation == nil:
		b, err = p.Entry.Append(nil)
	case p.Generation != nil && p.Entry == nil:
		b, err = p.Generation.Append(nil)
	default:
		t.Fatalf("parsed to %+v: exactly one field must be set", p)
	}
	if err != nil {
		t.Fatalf("%+v cannot be written: %v", p, err)
	}
	return b
}

// Whatever is cut off, added, or of another version is told, never guessed.
func TestParseRefuses(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, g := range golden {
		value, _ := hex.DecodeString(g.value)
		for n := range value {
			if _, err := Parse(value[:n]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s, the first %d bytes: %v, want ErrCorrupt", g.name, n, err)
			}
		}
		if _, err := Parse(append(slices.Clone(value), 0)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s with one byte more: %v, want ErrCorrupt", g.name, err)
		}
	}
	entry := func(body string) string {
		return "010101" + "0178" + strings.Repeat("00", 32) + "00" + body
	}
	for _, c := range []struct {
		name, value string
		want        error
	}{
		{"version 0", "0001", ErrVersion},
		{"version 2", "0201", ErrVersion},
		{"version 2 alone", "02", ErrVersion},
		{"kind 3", "0103", ErrVersion},
		{"phase 3", "0102" + "01" + "066c6564676572" + "03" + "00" + "026731", ErrVersion},
		{"phase 0", "0102" + "01" + "066c6564676572" + "00" + "00" + "026731", ErrCorrupt},
		{"generation 0", "0102" + "00" + "066c6564676572" + "01" + "00" + "026731", ErrCorrupt},
		{"reset while active", "0102" + "01" + "066c6564676572" + "01" + "02" + "026731", ErrCorrupt},
		{"reset to -3", "0102" + "01" + "066c6564676572" + "02" + "05" + "026731", ErrCorrupt},
		{"no group", "0102" + "01" + "066c6564676572" + "01" + "00" + "00", ErrCorrupt},
		{"no guarantee", "0102" + "01" + "00" + "01" + "00" + "026731", ErrCorrupt},
		{"number with a byte too many", "0102" + "8100" + "066c6564676572" + "01" + "00" + "026731", ErrCorrupt},
		{"number beyond 64 bits", "0102" + "ffffffffffffffffff02" + "066c6564676572" + "01" + "00" + "026731", ErrCorrupt},
		{"no ranges", entry("00"), ErrCorrupt},
		{"more ranges than bytes", entry("ff01" + "0000"), ErrCorrupt},
		{"more ranges than may be", entry("a19c01" + strings.Repeat("0000", MaxRanges+1)), ErrCorrupt},
		{"offset beyond the last", entry("01" + "ffffffffffffffff7f" + "00"), ErrCorrupt},
		{"end beyond the last", entry("01" + "01" + "feffffffffffffff7f"), ErrCorrupt},
		{"range after the last offset", entry("02" + "feffffffffffffff7f" + "00" + "00" + "00"), ErrCorrupt},
		{"partition beyond 32 bits", "010101" + "0178" + strings.Repeat("00", 32) + "8080808008" + "01" + "0000", ErrCorrupt},
	} {
		value, err := hex.DecodeString(c.value)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if _, err := Parse(value); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	good, _ := hex.DecodeString(entry("01" + "feffffffffffffff7f" + "00"))
	if p, err := Parse(good); err != nil || p.Entry.Ranges[0] != (Range{math.MaxInt64 - 1, math.MaxInt64 - 1}) {
		t.Errorf("the last offset that may be: %+v, %v", p, err)
	}
}

// What cannot be read back is not written either.
func TestAppendRefuses(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		field string
		spoil func(*Entry)
	}{
		{"Generation", func(e *Entry) { e.Generation = 0 }},
		{"TransactionalID", func(e *Entry) { e.TransactionalID = "" }},
		{"TransactionalID", func(e *Entry) { e.TransactionalID = strings.Repeat("x", maxString+1) }},
		{"Partition", func(e *Entry) { e.Partition = -1 }},
		{"Ranges", func(e *Entry) { e.Ranges = nil }},
		{"Ranges", func(e *Entry) { e.Ranges = scattered(MaxRanges + 1) }},
		{"range -1 to 0", func(e *Entry) { e.Ranges = []Range{{-1, 0}} }},
		{"range 5 to 4", func(e *Entry) { e.Ranges = []Range{{5, 4}} }},
		{"range 4 to 6", func(e *Entry) { e.Ranges = []Range{{3, 4}, {4, 6}} }},
		{"range 1 to 1", func(e *Entry) { e.Ranges = []Range{{3, 4}, {1, 1}} }},
		{"range 3 to 9223372036854775807", func(e *Entry) { e.Ranges = []Range{{3, math.MaxInt64}} }},
	} {
		e := sample()
		c.spoil(&e)
		got, err := e.Append([]byte("before"))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.field) || string(got) != "before" {
			t.Errorf("%s: %q, %v", c.field, got, err)
		}
	}
	for _, g := range []Generation{
		{}, {Number: 1, Guarantee: "ledger", Phase: 3, Group: "g"}, {Number: 1, Guarantee: "ledger", Phase: Active, ResetTo: 5, Group: "g"},
		{Number: 1, Guarantee: "ledger", Phase: Active}, {Number: 1, Phase: Active, Group: "g"},
	} {
		if got, err := g.Append([]byte("before")); !errors.Is(err, ErrInvalid) || string(got) != "before" {
			t.Errorf("%+v: %q, %v", g, got, err)
		}
	}
}

func scattered(n int) []Range {
	rs := make([]Range, n)
	for i := range rs {
		rs[i] = Range{int64(2 * i), int64(2 * i)}
	}
	return rs
}

// The largest entry stays below what brokers and producers take by default, even
// with the longest id and offsets that lie as far apart as can be.
func TestLargestEntry(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const apart = math.MaxInt64 / (2*MaxRanges + 1)
	e := sample()
	e.TransactionalID = strings.Repeat("x", maxString)
	e.Ranges = make([]Range, MaxRanges)
	for i := range e.Ranges {
		first := apart * int64(2*i+1)
		e.Ranges[i] = Range{first, first + apart}
	}
	b, err := e.Append(nil)
	if err != nil || len(b) > 400_000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if len(b) < 14*MaxRanges {
		t.Errorf("%d bytes: this is not the largest", len(b))
	}
}

func TestSplit(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct{ ranges, parts int }{{1, 1}, {MaxRanges, 1}, {MaxRanges + 1, 2}, {100_000, 5}, {100_001, 6}} {
		e := sample()
		e.Ranges = scattered(c.ranges)
		parts := Split(e)
		if len(parts) != c.parts {
			t.Errorf("%d ranges: %d parts, want %d", c.ranges, len(parts), c.parts)
		}
		var all []Range
		for i, p := range parts {
			if _, err := p.Append(nil); err != nil {
				t.Errorf("%d ranges, part %d: %v", c.ranges, i, err)
			}
			all = append(all, p.Ranges...)
			p.Ranges = e.Ranges
			if !reflect.DeepEqual(p, e) {
				t.Errorf("%d ranges, part %d differs in more than its ranges", c.ranges, i)
			}
		}
		if !slices.Equal(all, e.Ranges) {
			t.Errorf("%d ranges: the parts hold %d others", c.ranges, len(all))
		}
	}
}

func TestGenerationOrder(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	g := func(n int64, p Phase, guarantee string) Generation {
		return Generation{Number: n, Phase: p, Guarantee: guarantee, Group: "g"}
	}
	for _, c := range []struct {
		name                    string
		old, later              Generation
		supersedes, contradicts bool
	}{
		{"repeated", g(1, Active, "ledger"), g(1, Active, "ledger"), true, false},
		{"next begins", g(1, Active, "ledger"), g(2, Resetting, "ledger"), true, false},
		{"completed", g(2, Resetting, "ledger"), g(2, Active, "ledger"), true, false},
		{"a late copy of the reset", g(2, Active, "ledger"), g(2, Resetting, "ledger"), false, false},
		{"a late copy of the one before", g(2, Resetting, "ledger"), g(1, Active, "ledger"), false, false},
		{"moved", g(1, Active, "ledger"), g(2, Active, "staged"), true, false},
		{"two writers", g(1, Active, "ledger"), g(1, Active, "staged"), true, true},
	} {
		if got := c.later.Supersedes(c.old); got != c.supersedes {
			t.Errorf("%s: supersedes %v", c.name, got)
		}
		if got := c.later.Contradicts(c.old); got != c.contradicts {
			t.Errorf("%s: contradicts %v", c.name, got)
		}
	}
}

func TestText(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for got, want := range map[string]string{
		Range{5, 5}.String(): "5", Range{5, 9}.String(): "5-9",
		Active.String(): "active", Resetting.String(): "resetting", Phase(9).String(): "Phase(9)",
	} {
		if got != want {
			t.Errorf("reads %q, want %q", got, want)
		}
	}
}
