package groupmeta

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"pgregory.net/rapid"
)

func TestNew(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const long = 36
	for _, c := range []struct {
		name          string
		group, member string
		epoch         int32
		field         string // of the error; empty: fine
	}{
		{"plain", "orders", "AbCdEfGhIjKlMnOpQrStUv", 4, ""},
		{"epoch 0: joining", "orders", "m", 0, ""},
		{"36 characters", "orders", strings.Repeat("m", long), 1, ""},
		{"36 characters of two bytes", "orders", strings.Repeat("é", long), 1, ""},
		{"18 characters that Java counts twice", "orders", strings.Repeat("🌍", long/2), 1, ""},
		{"32767 bytes of group", strings.Repeat("g", 1<<15-1), "m", 1, ""},
		{"no group", "", "m", 1, "GroupID"},
		{"blank group", " \t", "m", 1, "GroupID"},
		{"over-long group", strings.Repeat("g", 1<<15), "m", 1, "GroupID"},
		{"group not UTF-8", "\xff", "m", 1, "GroupID"},
		{"no member", "orders", "", 1, "MemberID"},
		{"37 characters", "orders", strings.Repeat("m", long+1), 1, "MemberID"},
		{"19 characters that Java counts twice", "orders", strings.Repeat("🌍", long/2+1), 1, "MemberID"},
		{"member not UTF-8", "orders", "a\xc3", 1, "MemberID"},
		{"left", "orders", "m", -1, "MemberEpoch"},
		{"fenced", "orders", "m", -2, "MemberEpoch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := New(c.group, c.member, c.epoch)
			if c.field != "" {
				wantField(t, err, c.field)
				if !m.IsZero() {
					t.Errorf("refused, and yet gave %v", m)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if m.GroupID() != c.group || m.MemberID() != c.member || m.MemberEpoch() != c.epoch || m.IsZero() {
				t.Errorf("holds %q, %q, %d", m.GroupID(), m.MemberID(), m.MemberEpoch())
			}
		})
	}
}

func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Field != field || !e.Usage() {
		t.Fatalf("got %v, want an *Error about %s", err, field)
	}
	if !strings.Contains(e.Error(), field) {
		t.Errorf("%q does not name %s", e, field)
	}
}

func TestSnapshotsCompare(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	a, b, later := must(t, "g", "m", 3), must(t, "g", "m", 3), must(t, "g", "m", 4)
	if a != b || a == later {
		t.Errorf("== tells %v, %v and %v apart wrongly", a, b, later)
	}
}

func TestString(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	if got := must(t, "orders", "m1", 7).String(); got != "orders/m1@7" {
		t.Errorf("reads %q", got)
	}
	if got := (ShareGroupMetadata{}).String(); got != "no member" {
		t.Errorf("zero reads %q", got)
	}
}

// The text is written to disk and to other processes: it may not drift.
func TestTextIsFixed(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		m    ShareGroupMetadata
		text string
	}{
		{ShareGroupMetadata{}, ``},
		{must(t, "orders", "AbC-_1", 7), `v1 7 "orders" "AbC-_1"`},
		{must(t, `a "b" c\`, "\n", 0), `v1 0 "a \"b\" c\\" "\n"`},
		{must(t, "größe 🌍", "\u200b\x00\ufffd", 1<<31-1), `v1 2147483647 "gr\u00f6\u00dfe \U0001f30d" "\u200b\x00\ufffd"`},
	} {
		text, err := c.m.MarshalText()
		if err != nil || string(text) != c.text {
			t.Errorf("%v is written %s (%v), want %s", c.m, text, err, c.text)
		}
		back := must(t, "overwritten", "m", 1)
		if err := back.UnmarshalText([]byte(c.text)); err != nil || back != c.m {
			t.Errorf("%s is read as %v (%v), want %v", c.text, back, err, c.m)
		}
	}
}

func TestUnmarshalTextRefuses(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	before := must(t, "kept", "m", 5)
	for _, c := range []struct{ name, text, field string }{
		{"other version", `v2 7 "g" "m"`, "text"},
		{"no version", `7 "g" "m"`, "text"},
		{"version alone", `v1`, "MemberEpoch"},
		{"epoch no number", `v1 x "g" "m"`, "MemberEpoch"},
		{"epoch too large", `v1 2147483648 "g" "m"`, "MemberEpoch"},
		{"epoch negative", `v1 -1 "g" "m"`, "MemberEpoch"},
		{"group not quoted", `v1 7 g m`, "GroupID"},
		{"group not closed", `v1 7 "g`, "GroupID"},
		{"group empty", `v1 7 "" "m"`, "GroupID"},
		{"no member", `v1 7 "g"`, "MemberID"},
		{"member not closed", `v1 7 "g" "m`, "MemberID"},
		{"member too long", `v1 7 "g" "` + strings.Repeat("m", 37) + `"`, "MemberID"},
		{"something behind", `v1 7 "g" "m" `, "text"},
		{"epoch with a sign", `v1 +7 "g" "m"`, "text"},
		{"epoch with zeros", `v1 007 "g" "m"`, "text"},
		{"other quotes", "v1 7 `g` \"m\"", "text"},
		{"no space between", `v1 7 "g""m"`, "text"},
		{"escaped without need", `v1 7 "\x67" "m"`, "text"},
		{"not UTF-8 inside", `v1 7 "\xff" "m"`, "GroupID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := before
			wantField(t, m.UnmarshalText([]byte(c.text)), c.field)
			if m != before {
				t.Errorf("changed to %v", m)
			}
		})
	}
}

func TestTextRoundTrip(t *testing.T) {
	testkit.Deadline(t, 60*time.Second)
	rapid.Check(t, func(t *rapid.T) {
		group := rapid.String().Filter(func(s string) bool { return strings.TrimSpace(s) != "" && utf8.ValidString(s) }).Draw(t, "group")
		member := rapid.StringN(1, 18, -1).Filter(utf8.ValidString).Draw(t, "member")
		m, err := New(group, member, rapid.Int32Min(0).Draw(t, "epoch"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := m.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range text {
			if b < ' ' || b > '~' {
				t.Fatalf("%q is not one line of ASCII", text)
			}
		}
		var back ShareGroupMetadata
		if err := back.UnmarshalText(text); err != nil || back != m {
			t.Fatalf("%s is read as %v (%v)", text, back, err)
		}
	})
}

func TestJSON(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	type carried struct{ Member ShareGroupMetadata }
	in := carried{must(t, `odd "group"`, "m", 2)}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out carried
	if err := json.Unmarshal(text, &out); err != nil || out != in {
		t.Errorf("%s is read as %v (%v)", text, out, err)
	}
}

func must(t *testing.T, group, member string, epoch int32) ShareGroupMetadata {
	t.Helper()
	m, err := New(group, member, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
