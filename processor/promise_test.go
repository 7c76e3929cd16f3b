package processor

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// The first guarantee that the brokers prove is kept, unless the group is bound to
// one; a Processor that is not to keep that one refuses.
func TestChoose(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	unproven := errors.New("brokers cannot stage")
	missing := errors.New("there is no ledger")
	all := []Guarantee{Staged, Ledger, AckAfterCommit}
	bound := func(g Guarantee) *Guarantee { return &g }
	for name, c := range map[string]struct {
		want []Guarantee
		evidence
		got Guarantee
		err error
	}{
		"staged":                              {all[:1], evidence{}, Staged, nil},
		"staged, unproven":                    {all[:1], evidence{staging: unproven}, 0, unproven},
		"the first that is proven":            {all, evidence{}, Staged, nil},
		"the next, where it is not":           {all, evidence{staging: unproven}, Ledger, nil},
		"the next, in their order":            {[]Guarantee{Staged, AckAfterCommit, Ledger}, evidence{staging: unproven}, AckAfterCommit, nil},
		"no ledger":                           {all[1:], evidence{noLedger: missing}, Ledger, missing},
		"no ledger, and none needed":          {all, evidence{noLedger: missing}, Staged, nil},
		"no ledger, after what is not proven": {all, evidence{staging: unproven, noLedger: missing}, Ledger, missing},
		"bound to the ledger":                 {all, evidence{recorded: bound(Ledger)}, Ledger, nil},
		"bound to the last":                   {all, evidence{recorded: bound(AckAfterCommit)}, AckAfterCommit, nil},
		"bound to what is not proven":         {all, evidence{recorded: bound(Staged), staging: unproven}, 0, unproven},
		"bound to what is not to be":          {all[:1], evidence{recorded: bound(Ledger)}, 0, ErrGuarantee},
		"bound, and none of several":          {all[1:], evidence{recorded: bound(Staged)}, 0, ErrGuarantee},
		"bound, worse than what is meant":     {all[:2], evidence{recorded: bound(AckAfterCommit), staging: unproven}, 0, ErrGuarantee},
	} {
		got, err := choose(c.want, c.evidence)
		if got != c.got || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: %v, %v, want %v, %v", name, got, err, c.got, c.err)
		}
	}
	cfg := Config{Guarantee: Staged, Fallback: []Guarantee{AckAfterCommit}}
	if got := cfg.candidates(); !slices.Equal(got, []Guarantee{Staged, AckAfterCommit}) {
		t.Errorf("candidates %v", got)
	}
}
