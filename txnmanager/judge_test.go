package txnmanager

import (
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

func isErr(err, target error) bool { return errors.Is(err, target) }

// TestJudge is reference/errors.md 2.5 as the client sees it.
func TestJudge(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const (
		C = sharetxn.Committed
		A = sharetxn.Aborted
		U = sharetxn.Unknown
	)
	final := func(o sharetxn.Outcome, next event) judgement { return judgement{final: true, outcome: o, next: next} }
	for _, c := range []struct {
		name string
		v    verdict
		q    question
		want judgement
	}{
		{"commit done", vOK, question{commit: true}, final(C, evSettled)},
		{"commit done, answered at a repeat", vOK, question{commit: true, mayHaveCommitted: true}, final(C, evSettled)},
		{"commit of a transaction that timed out", vNotCommitted, question{commit: true}, judgement{abort: true, notCommitted: true}},
		{"the same, at a repeat", vNotCommitted, question{commit: true, mayHaveCommitted: true}, judgement{abort: true, notCommitted: true}},
		{"commit, transaction abortable", vAbort, question{commit: true}, judgement{abort: true}},
		{"commit, transaction abortable, earlier attempt lost", vAbort, question{commit: true, mayHaveCommitted: true}, judgement{abort: true}},
		{"commit by a zombie", vFenced, question{commit: true}, final(A, evFenced)},
		{"commit, earlier attempt lost, then fenced", vFenced, question{commit: true, mayHaveCommitted: true}, final(U, evFenced)},
		{"commit refused by access", vRefused, question{commit: true}, final(A, evSettledLost)},
		{"commit refused by access, earlier attempt lost", vRefused, question{commit: true, mayHaveCommitted: true}, final(U, evUnanswered)},
		{"commit, markers being written", vAgain, question{commit: true}, judgement{}},
		{"commit, coordinator moved", vElsewhere, question{commit: true}, judgement{}},
		{"commit, unknown code", vUnclear, question{commit: true}, judgement{}},

		{"abort done", vOK, question{}, final(A, evSettled)},
		{"abort done after a commit that timed out", vOK, question{mayHaveCommitted: true, notCommitted: true}, final(A, evSettled)},
		{"abort done after a commit without answer", vOK, question{mayHaveCommitted: true}, final(A, evSettled)},
		{"abort finds the lost commit done", vCommitted, question{mayHaveCommitted: true}, final(C, evSettledLost)},
		{"abort finds a commit that nobody sent", vCommitted, question{}, final(U, evFenced)},
		{"abort finds a commit that was denied", vCommitted, question{mayHaveCommitted: true, notCommitted: true}, final(U, evFenced)},
		{"abort by a zombie", vFenced, question{}, final(A, evFenced)},
		{"abort fenced, denied commit", vFenced, question{mayHaveCommitted: true, notCommitted: true}, final(A, evFenced)},
		{"abort fenced, lost commit", vFenced, question{mayHaveCommitted: true}, final(U, evFenced)},
		{"abort refused", vRefused, question{}, final(A, evSettledLost)},
		{"abort refused, lost commit", vRefused, question{mayHaveCommitted: true}, final(U, evUnanswered)},
		{"abort, producer id unknown", vAbort, question{}, final(A, evSettledLost)},
		{"abort, producer id unknown, lost commit", vAbort, question{mayHaveCommitted: true}, final(U, evUnanswered)},
		{"abort, markers being written", vAgain, question{}, judgement{}},
		{"abort, unknown code", vUnclear, question{}, judgement{}},
		{"abort answered as a commit is", vNotCommitted, question{}, final(U, evFenced)},
	} {
		if got := judge(c.v, c.q); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Whatever is answered: Committed needs an answer that says so to someone who
// asked, and no answer makes Aborted of what may be committed.
func TestJudgeProvesNothingByItself(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	committed := 0
	for v := range verdicts {
		for i := range 8 {
			q := question{commit: i&1 != 0, mayHaveCommitted: i&2 != 0, notCommitted: i&4 != 0}
			j := judge(v, q)
			if j.outcome == sharetxn.Committed {
				committed++
				if !(q.commit && v == vOK || !q.commit && v == vCommitted && q.mayHaveCommitted && !q.notCommitted) {
					t.Errorf("%v to %+v is taken for a commit", v, q)
				}
			}
			if j.outcome == sharetxn.Aborted && q.mayHaveCommitted && !q.notCommitted && (q.commit || v != vOK) {
				t.Errorf("%v to %+v is taken for an abort", v, q)
			}
			if !j.final && j.outcome != sharetxn.Unknown {
				t.Errorf("%v to %+v has an outcome and goes on", v, q)
			}
		}
	}
	if committed == 0 {
		t.Error("nothing is ever committed")
	}
}
