package check

import "fmt"

// reports holds what clients were told against what became of their
// transactions.
func (j *judge) reports() {
	for _, t := range j.txns {
		for i, r := range t.reports {
			if what := t.misreported(r, j.Observed); what != "" {
				j.add(I4, Misreported, t.where(), []Txn{t.Txn}, "operation %d of %s was reported %s, and %s", r.Op, j.opName(r.Op, t.Txn), r.Outcome, what)
			}
			if last := i == len(t.reports)-1; last && r.Outcome == Unknown && j.Observed && t.ended == 0 && (t.acks > 0 || len(t.produced) > 0) {
				j.add(I4, Unresolved, t.where(), []Txn{t.Txn}, "operation %d of %s is still unknown", r.Op, j.opName(r.Op, t.Txn))
			}
		}
	}
}

// misreported says why a report is not true; "" if it is.
func (t *transaction) misreported(r report, observed bool) string {
	switch {
	case r.Outcome == Aborted && t.ended > 0 && t.commit:
		return "it was committed"
	case r.Outcome == Aborted && t.visible > 0:
		return "its output is visible"
	case r.Outcome != Committed || !observed:
		return ""
	case t.ended > 0 && !t.commit:
		return "it was aborted"
	case t.ended == 0 && (t.acks > 0 || len(t.produced) > 0):
		return "it was never decided"
	case t.ended > r.line:
		return "it was decided only later"
	}
	return ""
}

// where is a place to look at a transaction: its first output.
func (t *transaction) where() Range {
	if len(t.produced) == 0 {
		return Range{}
	}
	return t.produced[0]
}

func (j *judge) opName(op int64, k Txn) string {
	if id := j.names[op]; id != "" {
		return fmt.Sprintf("transaction %s (%d/%d)", id, k.Producer, k.Epoch)
	}
	return j.txnName(k)
}

// fenced tells of the commits of producers that had been fenced.
func (j *judge) fenced() {
	for _, z := range j.zombies {
		t := j.txns[z.by.Txn]
		j.add(I5, Zombie, t.where(), []Txn{z.by.Txn, z.fence}, "%s committed after InitProducerId gave %d/%d", j.txnName(z.by.Txn), z.fence.Producer, z.fence.Epoch)
	}
}
