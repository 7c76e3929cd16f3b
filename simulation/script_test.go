package simulation

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
)

func TestParse(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	s, err := Parse(strings.NewReader("# why\n\nset guarantee ledger\n set lock 5s\n3s  produce 10\n1.5s start p0\n3s outage EndTxn 8s answer 51\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Setup.Guarantee != processor.Ledger || s.Setup.Lock != 5*time.Second || s.Setup.Brokers != defaults().Brokers {
		t.Errorf("set up with %+v", s.Setup)
	}
	var ops []string
	for _, o := range s.Ops {
		ops = append(ops, o.String())
	}
	if want := []string{"1.5s start p0", "3s produce 10", "3s outage EndTxn 8s answer 51"}; !slices.Equal(ops, want) {
		t.Errorf("operations %q, want %q", ops, want)
	}
}

func TestParseRefuses(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	for text, want := range map[string]string{
		"set":                                    "set: want a field and a value",
		"set colour red":                         `there is no field "colour"`,
		"set guarantee maybe":                    "set guarantee:",
		"set profile none":                       "set profile:",
		"set form loop":                          "set form:",
		"set handler none":                       "set handler:",
		"set handler batch\nset form closure":    "handler batch: form closure has no handler",
		"set handler batch\nset concurrency 4":   "handler batch: concurrency 4",
		"set lock 2m":                            "set lock:",
		"set brokers 0":                          "set brokers:",
		"set guarantee ledger\nset form closure": "form closure: guarantee ledger is the Processor's",
		"set guarantee ack-after-commit\nset form acknowledger": "form acknowledger: guarantee ack-after-commit is the Processor's",
		"1s unset all":                  `"all" is no way to give up offsets; there are ["alter" "delete" "group"]`,
		"produce 3":                     `"produce" is neither set nor a time`,
		"-1s produce 3":                 `"-1s" is neither set nor a time`,
		"1s":                            "no operation at 1s",
		"1s dance":                      `there is no operation "dance"`,
		"1s produce":                    "a number is missing; it is: produce COUNT",
		"1s produce many":               `"many" is no number`,
		"1s produce 3 4":                `["4"] is too much`,
		"1s hold p0 long":               `"long" is no duration`,
		"1s fault Fetch 1 lose-answer":  `"Fetch" is no API`,
		"1s fault EndTxn 1 explode":     `"explode" is no action`,
		"1s fault EndTxn 0 lose-answer": `"0" is no number`,
		"1s fault EndTxn 1 leader in 0": "a number is missing",
		"1s part 1 1 3s":                "parted from itself",
	} {
		_, err := Parse(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", text, err, want)
		}
	}
}

// What is generated can be written, read and played again, and a seed makes the
// same each time.
func TestGenerate(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	seen, kinds := make(map[string]bool), make(map[string]bool)
	for seed := range uint64(500) {
		s := Generate(seed)
		again, err := Parse(strings.NewReader(s.String()))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, s)
		}
		if again.String() != s.String() || Generate(seed).String() != s.String() || !reflect.DeepEqual(again.Setup, s.Setup) {
			t.Errorf("seed %d: read again it is\n%s\nand it was\n%s", seed, again, s)
		}
		kinds[s.Setup.kind()+", "+string(s.Setup.Form)] = true
		for _, o := range s.Ops {
			seen[o.Verb] = true
			if o.At > 2*time.Minute {
				t.Errorf("seed %d: %v is too late for two minutes", seed, o)
			}
		}
	}
	for _, v := range Verbs() {
		if !seen[v] {
			t.Errorf("no seed makes %q", v)
		}
	}
	for _, p := range []string{"draft95", "kip93"} {
		for _, f := range []Form{FormProcessor, FormClosure, FormExplicit, FormAcknowledger} {
			if k := p + ", " + string(f); !kinds[k] {
				t.Errorf("no seed is of %s", k)
			}
		}
	}
}
