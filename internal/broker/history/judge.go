package history

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// Facts are what a group is judged by: the history, and what the brokers hold
// at rest.
type Facts struct {
	Group   string
	Profile wire.Profile
	Events  []Event
	Topics  map[[16]byte]string // names of the group's sources
	Shares  []share.PartitionState
	Logs    map[txn.Partition]Log // of sources and outputs, all partitions
	// Outputs are the topics that the group's transactions may publish on; nil:
	// all that they did publish on, but for its sources.
	Outputs []string
}

// Report is the judgement.
type Report struct {
	Findings     []Finding
	Acknowledged int // records that one committed transaction accepted or rejected, or more
	Transactions int // committed ones that acknowledged records of the group
	Outputs      int // visible records of these
}

// Judge is pure.
func Judge(f Facts) Report {
	j := judgement{Facts: f, story: fold(f.Events, f.Group), visible: make(map[txn.Partition][]Batch), sources: make(map[string]bool)}
	for at, log := range f.Logs {
		j.visible[at] = log.published()
	}
	for _, t := range j.transactions {
		if t.ours && t.commit {
			j.report.Transactions++
		}
	}
	for _, s := range f.Shares {
		j.sources[f.Topics[s.Topic]] = true
	}
	if f.Outputs == nil {
		j.Outputs = j.published()
	}
	read := make(map[txn.Partition]bool)
	for _, s := range f.Shares {
		at := txn.Partition{Topic: f.Topics[s.Topic], Partition: s.Partition}
		read[at] = true
		j.source(at, s)
	}
	for at, log := range f.Logs {
		if j.sources[at.Topic] && !read[at] {
			j.unread(at, log)
		}
		if log.Bounds.LastStable < log.Bounds.End {
			j.add(Hanging, at, log.Bounds.LastStable, log.Bounds.End-1, "the last stable offset is below the high watermark: a transaction has not ended")
		}
		if slices.Contains(j.Outputs, at.Topic) {
			j.output(at)
		}
	}
	for key, t := range j.transactions {
		j.complete(key, t)
	}
	j.report.Findings = join(j.report.Findings)
	return j.report
}

type judgement struct {
	Facts
	story
	visible map[txn.Partition][]Batch
	sources map[string]bool // topics
	report  Report
}

func (j *judgement) add(k Kind, at txn.Partition, first, last int64, format string, args ...any) *Finding {
	j.report.Findings = append(j.report.Findings, Finding{
		Kind: k, Topic: at.Topic, Partition: at.Partition, First: first, Last: last, What: fmt.Sprintf(format, args...),
	})
	return &j.report.Findings[len(j.report.Findings)-1]
}

// published gives the topics that the group's transactions wrote to, but for
// its sources.
func (j *judgement) published() []string {
	var out []string
	for _, t := range j.transactions {
		for _, p := range t.produced {
			if topic := p.Partition.Topic; t.ours && !j.sources[topic] && !slices.Contains(out, topic) {
				out = append(out, topic)
			}
		}
	}
	return out
}

// source judges the records of a share partition.
func (j *judgement) source(at txn.Partition, s share.PartitionState) {
	if n := s.Acquired + s.Pending; n > 0 {
		j.add(Left, at, s.Start, s.End-1, "%d acquired and %d staged at rest", s.Acquired, s.Pending)
	}
	ways := j.deliveries[part{s.Topic, s.Partition}]
	for _, b := range j.Logs[at].Batches {
		if b.Control {
			continue
		}
		for offset := b.First; offset <= b.Last; offset++ {
			d := ways[offset]
			if d != nil {
				j.record(at, offset, d)
			}
			switch undone := d == nil || !done(d.state); {
			case undone && offset >= s.Start:
				j.add(Left, at, offset, offset, "not done for the group")
			case undone && d != nil:
				j.add(Lost, at, offset, offset, "passed over by the group's start offset while it was %v", d.state)
			}
		}
	}
}

func (j *judgement) unread(at txn.Partition, log Log) {
	for _, b := range log.Batches {
		if !b.Control {
			j.add(Left, at, b.First, b.Last, "not done for the group")
		}
	}
}

// record judges one record's way through the group.
func (j *judgement) record(at txn.Partition, offset int64, d *delivery) {
	if d.miscount {
		j.add(Miscounted, at, offset, offset, "a delivery did not count one more")
	}
	if d.astray {
		j.add(Contradiction, at, offset, offset, "its acknowledgement did not follow its transaction")
	}
	by := j.committed(d)
	if len(by) > 0 {
		j.report.Acknowledged++
	}
	switch {
	case len(by) > 1:
		j.duplicate(at, offset, by)
	case len(by) == 1 && d.accepted:
		j.add(Duplicate, at, offset, offset, "acknowledged by %s, and plainly", j.name(by[0].by))
	case len(by) == 0 && d.accepted:
		j.add(Lost, at, offset, offset, "accepted plainly, outside of any transaction")
	case len(by) == 0 && d.atLimit:
		j.add(Lost, at, offset, offset, "archived after %d deliveries, its limit", d.count)
	case len(by) == 0 && done(d.state) && !d.rejected:
		j.add(Lost, at, offset, offset, "%v by no committed transaction", d.state)
	}
}

// duplicate judges a record of several committed transactions. Profile KIP93
// concedes it where all of them but one had lost the record before they ended.
func (j *judgement) duplicate(at txn.Partition, offset int64, by []claim) {
	var names, windows []string
	lost := 0
	for _, c := range by {
		names = append(names, j.name(c.by))
		switch c.lost {
		case share.LostLock:
			windows = append(windows, "its lock ended while it was staged")
		case share.LostLeader:
			windows = append(windows, "its leader or broker was lost while it was staged")
		default:
			continue
		}
		lost++
	}
	conceded := j.Profile == wire.KIP93 && lost >= len(by)-1
	why, window := "not conceded", ""
	if conceded {
		slices.Sort(windows)
		window = strings.Join(slices.Compact(windows), "; ")
		why = "conceded: " + window
	}
	f := j.add(Duplicate, at, offset, offset, "acknowledged by %s (%s)", strings.Join(names, ", "), why)
	f.Conceded, f.Window = conceded, window
}

// output judges what is visible on a partition.
func (j *judgement) output(at txn.Partition) {
	for _, b := range j.visible[at] {
		t := j.transactions[b.Writer]
		switch {
		case !b.Transactional:
			j.add(Stray, at, b.First, b.Last, "visible, and written outside of any transaction")
		case t == nil || !t.commit:
			j.add(Stray, at, b.First, b.Last, "visible, and %s did not commit", j.name(b.Writer))
		case t.staged <= 0:
			j.add(Unacknowledged, at, b.First, b.Last, "published by %s, which acknowledged nothing", j.name(b.Writer))
		case t.ours:
			j.report.Outputs += int(b.Last - b.First + 1)
		}
	}
}

// complete judges whether all that a committed transaction wrote is visible.
func (j *judgement) complete(key txn.Key, t *transaction) {
	if !t.commit || !t.ours {
		return
	}
	for _, p := range t.produced {
		visible := slices.ContainsFunc(j.visible[p.Partition], func(b Batch) bool {
			return b.Writer == key && b.First <= p.First && p.Last <= b.Last
		})
		switch {
		case !slices.Contains(j.Outputs, p.Partition.Topic) && !j.sources[p.Partition.Topic]:
			j.add(Elsewhere, p.Partition, p.First, p.Last, "published by %s, on a topic that is not among the outputs", j.name(key))
		case !visible && p.Last >= j.Logs[p.Partition].Bounds.Start:
			j.add(Missing, p.Partition, p.First, p.Last, "%s committed it, and it is not visible", j.name(key))
		}
	}
}

// name is how a transaction is called in findings.
func (j *judgement) name(k txn.Key) string {
	if t := j.transactions[k]; t != nil && t.id != "" {
		return fmt.Sprintf("transaction %s (%d/%d)", t.id, k.ProducerID, k.ProducerEpoch)
	}
	return fmt.Sprintf("transaction %d/%d", k.ProducerID, k.ProducerEpoch)
}
