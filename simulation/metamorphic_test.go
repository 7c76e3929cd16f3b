package simulation

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

var inputs = flag.Uint64("inputs", 2, "how many inputs TestMetamorphic gives to all variants")

// variant is one way to do the same work.
type variant struct {
	name  string
	alter func(*Setup)
}

var variants = []variant{
	{"draft95, processor, one member", func(*Setup) {}},
	{"one record a transaction", func(s *Setup) { s.Batch = 1 }},
	{"many members, many records", func(s *Setup) { s.Members, s.Batch, s.Concurrency = 4, 500, 8 }},
	{"closure", func(s *Setup) { s.Form = FormClosure }},
	{"explicit, three ids in turn", func(s *Setup) { s.Form, s.IDs, s.Batch = FormExplicit, 3, 7 }},
	{"acknowledger, three members, small batches", func(s *Setup) { s.Form, s.Members, s.Batch = FormAcknowledger, 3, 4 }},
	{"all of a poll in one call", func(s *Setup) { s.Handler, s.Members = HandlerBatch, 2 }},
	{"kip93", func(s *Setup) { s.Profile = sharetxn.ProfileKIP93 }},
	{"kip93, closure, two members", func(s *Setup) { s.Profile, s.Form, s.Members = sharetxn.ProfileKIP93, FormClosure, 2 }},
	{"ledger", func(s *Setup) { s.Guarantee = processor.Ledger }},
	{"ledger, two members, small batches", func(s *Setup) { s.Guarantee, s.Members, s.Batch = processor.Ledger, 2, 3 }},
	{"ledger, all of a poll in one call", func(s *Setup) { s.Guarantee, s.Handler, s.Batch = processor.Ledger, HandlerBatch, 50 }},
	{"ack-after-commit", func(s *Setup) { s.Guarantee = processor.AckAfterCommit }},
}

// What is published depends on the input alone: not on how it is cut into
// transactions, who works on it, in which form, under which guarantee, nor on what
// goes wrong meanwhile. (Where a duplicate is conceded, by profile KIP93 or
// ack-after-commit, there are no faults.)
func TestMetamorphic(t *testing.T) {
	need(t)
	testkit.Deadline(t, perSeed+time.Duration(*inputs)*2*time.Minute)
	for seed := range *inputs {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			testkit.Deadline(t, perSeed+time.Duration(*inputs)*2*time.Minute)
			input := Generate(4 * seed) // with profile draft95, which concedes nothing
			var first published
			for _, v := range variants {
				for _, faults := range []bool{false, true} {
					s := Script{Setup: input.Setup, Ops: unset(input.Ops)}
					s.Setup.Handler, s.Setup.Form, s.Setup.Members, s.Setup.Concurrency, s.Setup.Batch, s.Setup.IDs = HandlerEach, FormProcessor, 1, 1, 20, 1
					v.alter(&s.Setup)
					staged := s.Setup.Guarantee == processor.Staged
					switch {
					case !faults:
						s.Ops = peaceful(input.Ops)
					case staged && s.Setup.Profile == sharetxn.ProfileKIP93, s.Setup.Guarantee == processor.AckAfterCommit:
						continue
					case !staged:
						s.Ops = unstaged(s.Ops)
					}
					r := Run(t, s)
					if r.Wrong != nil {
						tell(t, s, r, fmt.Sprintf("input-%d", seed))
						continue
					}
					if first == nil {
						first = r.Published
					}
					if !maps.Equal(r.Published, first) {
						t.Errorf("%s, faults %v: published\n%v\nand the first variant did\n%v", v.name, faults, r.Published, first)
					}
					if faults || seed > 0 || len(first) == 0 { // once for each variant is enough
						continue
					}
					s.Ops = slices.Insert(slices.Clone(s.Ops), 0, Op{Verb: "forget", do: forgetOne})
					if r := Run(t, s); maps.Equal(r.Published, first) {
						t.Errorf("%s with a handler that forgets an output: published the same", v.name)
					}
				}
			}
			if len(first) < 10 {
				t.Errorf("published %v: too little to compare", first)
			}
		})
	}
}

// peaceful leaves of a list what feeds and starts.
func peaceful(ops []Op) (kept []Op) {
	started := make(map[string]bool)
	for _, o := range ops {
		switch {
		case o.Verb == "produce", o.Verb == "poison":
		case o.Verb == "start" && !started[o.Args[0]]:
			started[o.Args[0]] = true
		default:
			continue
		}
		kept = append(kept, o)
	}
	return kept
}

// unset leaves out what has records done once more: which ones depends on how far the
// work was.
func unset(ops []Op) []Op {
	return slices.DeleteFunc(slices.Clone(ops), func(o Op) bool { return o.Verb == "reset" || o.Verb == "unset" })
}

// forgetOne has handlers forget what they make of the first record for topic out.
func forgetOne(w *world) {
	w.makes = func(value string) []*kgo.Record {
		return slices.DeleteFunc(outputs(value), func(r *kgo.Record) bool { return value == "h0" && r.Topic == topicOut })
	}
}

// unstaged leaves out the faults of an API that nobody speaks without Staged.
func unstaged(ops []Op) (kept []Op) {
	for _, o := range ops {
		if len(o.Args) == 0 || o.Args[0] != "TxnShareAcknowledge" {
			kept = append(kept, o)
		}
	}
	return kept
}
