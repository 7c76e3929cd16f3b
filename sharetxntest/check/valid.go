package check

import "fmt"

// maxOffsets bounds a range: each offset is looked at.
const maxOffsets = 10_000_000

// wrong says which value of an event cannot be; "" if all can.
func wrong(e Event) string {
	switch e := e.(type) {
	case Delivered:
		return e.Turn.wrong()
	case Staged:
		return first(e.Turn.wrong(), e.Verdict.wrong())
	case Unstaged:
		return e.Turn.wrong()
	case Resolved:
		return e.Turn.wrong()
	case Lost:
		if e.Why != LostLock && e.Why != LostLeader {
			return fmt.Sprintf("why %q", e.Why)
		}
		return e.Turn.wrong()
	case Decided:
		return first(e.Turn.wrong(), e.Verdict.wrong())
	case Expired:
		return e.Turn.wrong()
	case Released:
		return e.Turn.wrong()
	case Forgotten:
		return e.Turn.wrong()
	case Reset:
		if e.Offset == unset {
			e.Offset = 0
		}
		return e.At.wrong()
	case Started:
		return e.At.wrong()
	case Produced:
		return e.Range.wrong()
	case Entry:
		return e.Range.wrong()
	case Reported:
		switch e.Outcome {
		case Committed, Aborted, Unknown:
			return ""
		}
		return fmt.Sprintf("outcome %q", e.Outcome)
	case Handled:
		return first(e.At.wrong(), e.Verdict.wrong())
	case Read:
		return e.At.wrong()
	case Reached:
		return e.At.wrong()
	case Source:
		return e.Range.wrong()
	case Visible:
		return first(e.Range.wrong(), e.wrong())
	case Log:
		if !e.valid() || e.Start < 0 || e.Stable < e.Start || e.End < e.Stable {
			return fmt.Sprintf("start %d, stable %d and end %d of %v", e.Start, e.Stable, e.End, e.Place)
		}
	case Share:
		if !e.valid() || e.Acquired < 0 || e.Staged < 0 {
			return fmt.Sprintf("%d acquired and %d staged of %v", e.Acquired, e.Staged, e.Place)
		}
	}
	return ""
}

// first gives the first that says something.
func first(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

func (p Place) valid() bool { return p.Topic != "" && p.Partition >= 0 }

func (r Range) wrong() string {
	if !r.valid() || r.First < 0 || r.Last < r.First || r.Last-r.First >= maxOffsets {
		return fmt.Sprintf("offsets %d to %d of %v; a range has 1 to %d", r.First, r.Last, r.Place, maxOffsets)
	}
	return ""
}

func (a At) wrong() string {
	if !a.valid() || a.Offset < 0 {
		return fmt.Sprintf("offset %d of %v", a.Offset, a.Place)
	}
	return ""
}

func (t Turn) wrong() string {
	switch t.To {
	case Available, Acquired, TxPending, Acknowledged, Archived:
		return t.Range.wrong()
	}
	return fmt.Sprintf("state %q", t.To)
}

func (v Verdict) wrong() string {
	switch v {
	case Accept, Release, Reject, Gap, Fail:
		return ""
	}
	return fmt.Sprintf("verdict %q", v)
}

func (v Visible) wrong() string {
	switch {
	case v.From == nil && (v.Nth != 0 || v.Of != 0):
		return "nth and of are of a source, and from is missing"
	case v.From != nil && v.First != v.Last:
		return "from is of one record"
	case v.Nth < 0 || v.Of < 0 || v.Of > 0 && v.Nth > v.Of:
		return fmt.Sprintf("nth %d of %d", v.Nth, v.Of)
	case v.From != nil:
		return v.From.wrong()
	}
	return ""
}
