package sharetxntest

import (
	"testing"

	"github.com/sharetxn/sharetxn/sharetxntest/check"
)

// AssertExactlyOnce holds a group at rest against what the brokers themselves
// saw and hold, and against what clients were told. Each input that the group has
// done must be acknowledged by exactly one committed transaction, whose outputs are
// visible, all of them; nothing is left, acquired, staged or archived at its
// delivery limit; nothing is visible that no such transaction wrote. outputs are the
// topics that the group's transactions may write to, dead letters included. Name
// them: without names it looks only where the group's own transactions wrote, and
// what a client of the handler's own published elsewhere goes unseen.
//
// It knows guarantee Staged, and guarantee Ledger by the entries in the group's
// ledger. With AckAfterCommit nothing but the outputs themselves can tell which
// input they were made from: see AssertHistory, of which this is the short form.
//
// In sharetxn.ProfileKIP93 a duplicate that the text of KIP-1289 concedes (the
// lock ended, or the leader or broker was lost, while the record was staged) is
// logged and does not fail the test.
func (c *Cluster) AssertExactlyOnce(t testing.TB, group string, outputs ...string) {
	t.Helper()
	c.AssertHistory(t, Expect{Group: group, Outputs: outputs})
}

// AssertHistory holds a group at rest against the rules of package check, and
// gives the report. What guarantee or profile concede is logged, all else fails the
// test; so does a group that acknowledged nothing, where there would be nothing to
// assert.
func (c *Cluster) AssertHistory(t testing.TB, e Expect) check.Report {
	t.Helper()
	report := check.Judge(c.History(t, e))
	if report.Acknowledged == 0 {
		t.Errorf("group %s acknowledged nothing in a committed transaction: there is nothing to assert (with guarantee ack-after-commit it takes Expect.Source)", e.Group)
	}
	for _, f := range report.Findings {
		if f.Conceded {
			t.Logf("group %s: %v", e.Group, f)
			continue
		}
		t.Errorf("group %s: %v", e.Group, f)
	}
	return report
}
