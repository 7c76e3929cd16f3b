package check

import "slices"

// readRules holds what readers saw while all was going on against what is visible
// in the end: nothing that they saw may be gone, and of what is there nothing may
// have been passed over, which would be a part of a transaction.
func (j *judge) readRules() {
	for name, places := range j.readers {
		for p, had := range places {
			j.read(name, p, had)
		}
	}
}

func (j *judge) read(name string, p Place, had *readings) {
	start := j.logs[p].Start
	there := make([]int64, 0, len(j.visible[p]))
	for o := range j.visible[p] {
		there = append(there, o)
	}
	slices.Sort(there)
	next := start // what lies below was passed
	pass := func(to int64) {
		from, _ := slices.BinarySearch(there, next)
		for _, o := range there[from:] {
			if o >= to {
				break
			}
			j.add(I8, Torn, one(p, o), j.visible[p][o].txns(), "reader %s passed over it", name)
		}
		next = max(next, to)
	}
	last := int64(-1)
	for _, r := range had.records {
		here := one(p, r.Offset)
		if r.Offset <= last {
			j.add(I8, Retracted, here, nil, "reader %s came by it again, after offset %d", name, last)
			continue
		}
		switch v := j.visible[p][r.Offset]; {
		case v == nil && r.Offset >= start:
			j.add(I8, Retracted, here, nil, "reader %s saw it, and it is not there", name)
		case v != nil && v.Sum != r.Sum && v.Sum != "" && r.Sum != "":
			j.add(I8, Retracted, here, v.txns(), "reader %s saw other contents", name)
		}
		pass(r.Offset)
		last, next = r.Offset, max(next, r.Offset+1)
	}
	pass(had.reached)
}

func (v *Visible) txns() []Txn {
	if v.Txn == nil {
		return nil
	}
	return []Txn{*v.Txn}
}
