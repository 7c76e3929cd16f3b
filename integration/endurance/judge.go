package endurance

import "fmt"

// judge holds what was produced against what members logged. Its zero value is
// not ready: newJudge.
type judge struct {
	marks      []map[int64]mark // by partition and offset, of produced records
	deliveries uint8            // the most of any record
	strays     int              // accepted offsets that nobody produced
}

// mark is all that is known of a record.
type mark struct {
	accepted uint16 // times
	maybe    bool   // it may have been: the answer was lost
	dead     bool   // it may have been: the member was killed that asked for it
}

// verdict is the result.
type verdict struct {
	Produced, Accepted int
	Unproven           int // accepted by no log, but asked for with an answer lost, or by a member that was killed
	Dead               int // those of a member that was killed
	Duplicates         int // records that were accepted more than once
	Strays             int
	Deliveries         int // the most of any record
	Lost               []string
}

func newJudge(partitions int) *judge {
	j := &judge{marks: make([]map[int64]mark, partitions)}
	for p := range j.marks {
		j.marks[p] = make(map[int64]mark)
	}
	return j
}

// produced notes a record that the brokers acknowledged to its producer.
func (j *judge) produced(partition int32, offset int64) { j.marks[partition][offset] = mark{} }

// member takes the log of one life of a member. Of one that was killed, what it
// had under way may have been accepted; of one that ended in good order, what it
// was never told of was not.
func (j *judge) member(log []entry, killed bool) {
	type at struct {
		partition int32
		offset    int64
	}
	open := make(map[at]bool)
	for _, e := range log {
		for o := e.first; o <= e.last; o++ {
			m, ok := j.marks[e.partition][o]
			if !ok {
				j.strays++
				continue
			}
			if e.kind == tried {
				j.deliveries = max(j.deliveries, e.deliveries)
				open[at{e.partition, o}] = true
				continue
			}
			delete(open, at{e.partition, o})
			switch e.kind {
			case accepted:
				m.accepted++
			case unknown:
				m.maybe = true
			case refused, tried:
			}
			j.marks[e.partition][o] = m
		}
	}
	if !killed {
		return
	}
	for a := range open {
		m := j.marks[a.partition][a.offset]
		m.dead = true
		j.marks[a.partition][a.offset] = m
	}
}

// verdict judges when all logs were taken.
func (j *judge) verdict() verdict {
	v := verdict{Strays: j.strays, Deliveries: int(j.deliveries)}
	for p, marks := range j.marks {
		for o, m := range marks {
			v.Produced++
			switch {
			case m.accepted > 0:
				v.Accepted++
				if m.accepted > 1 {
					v.Duplicates++
				}
			case m.maybe || m.dead:
				v.Unproven++
				if m.dead {
					v.Dead++
				}
			case len(v.Lost) < 20:
				v.Lost = append(v.Lost, fmt.Sprintf("%d/%d", p, o))
			}
		}
	}
	return v
}

// LostCount is how many records were lost, of which Lost names some.
func (v verdict) LostCount() int { return v.Produced - v.Accepted - v.Unproven }

func (v verdict) String() string {
	return fmt.Sprintf("%d produced, %d accepted, %d unproven (%d of them under way when a member was killed, the others with the answer lost), %d lost, %d accepted more than once, at most %d deliveries",
		v.Produced, v.Accepted, v.Unproven, v.Dead, v.LostCount(), v.Duplicates, v.Deliveries)
}
