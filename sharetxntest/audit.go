package sharetxntest

import (
	"testing"

	"github.com/sharetxn/sharetxn/internal/broker/history"
)

// AssertExactlyOnce holds a group at rest against what the brokers themselves
// saw and hold; headers of records and what clients report play no part. Each
// input that the group has done must be acknowledged by exactly one committed
// transaction, whose outputs are visible, all of them; nothing is left,
// acquired, staged or archived at its delivery limit; nothing is visible that no
// such transaction wrote. outputs are the topics that the group's transactions
// may write to. Name them: without names it looks only where the group's own
// transactions wrote, and what a client of the handler's own published elsewhere
// goes unseen.
//
// In sharetxn.ProfileKIP93 a duplicate that the text of KIP-1289 concedes (the
// lock ended, or the leader or broker was lost, while the record was staged) is
// logged and does not fail the test. A rejected input must be done as well; that
// its dead letter is there the brokers cannot know.
//
// It is for acknowledgements that are part of transactions, so for a Processor with
// guarantee Staged. With Ledger or AckAfterCommit they follow the commit, and it
// fails: compare Committed with what you expect, each output once.
func (c *Cluster) AssertExactlyOnce(t testing.TB, group string, outputs ...string) {
	t.Helper()
	ctx, cancel := c.bounded()
	defer cancel()
	facts, err := c.broker.Facts(ctx, group, outputs...)
	if err != nil {
		t.Fatalf("sharetxntest.AssertExactlyOnce: %v", err)
	}
	report := history.Judge(facts)
	if report.Acknowledged == 0 {
		t.Errorf("group %s acknowledged nothing in a committed transaction: there is nothing to assert (with guarantee ledger or ack-after-commit none does: compare Committed)", group)
	}
	for _, f := range report.Findings {
		if f.Conceded {
			t.Logf("group %s: %v", group, f)
			continue
		}
		t.Errorf("group %s: %v", group, f)
	}
}
