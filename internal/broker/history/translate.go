package history

import (
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
)

// Judge holds facts of guarantee Staged against the checker's rules.
func Judge(f Facts) check.Report { return check.Judge(f.History(check.GuaranteeStaged)) }

// History is what the checker is told of facts.
func (f Facts) History(g check.Guarantee) *check.History {
	h := &check.History{Header: check.Header{Group: f.Group, Guarantee: g, Observed: true, Outputs: f.Outputs}}
	if f.Profile == wire.KIP93 {
		h.Profile = check.ProfileKIP93
	}
	for i, e := range f.Events {
		if told := f.tell(e); told != nil {
			h.Lines = append(h.Lines, check.Line{Time: f.at(i), Event: told})
		}
	}
	add := func(e check.Event) { h.Lines = append(h.Lines, check.Line{Event: e}) }
	sources := make(map[string]bool)
	for _, name := range f.Topics {
		sources[name] = true
	}
	for _, s := range f.Shares {
		add(check.Share{Place: place(f.Topics[s.Topic], s.Partition), Start: s.Start, End: s.End, Acquired: s.Acquired, Staged: s.Pending})
	}
	for at, l := range f.Logs {
		p := place(at.Topic, at.Partition)
		add(check.Log{Place: p, Start: l.Bounds.Start, Stable: l.Bounds.LastStable, End: l.Bounds.End})
		for _, b := range l.Batches {
			if sources[at.Topic] && !b.Control {
				add(check.Source{Range: check.Range{Place: p, First: b.First, Last: b.Last}})
			}
		}
		for _, b := range l.published() {
			v := check.Visible{Range: check.Range{Place: p, First: b.First, Last: b.Last}}
			if b.Transactional {
				v.Txn = new(txnOf(b.Writer))
			}
			add(v)
		}
	}
	return h
}

// at is when event i was told; zero where that was not kept.
func (f Facts) at(i int) time.Time {
	if i < len(f.Times) {
		return f.Times[i]
	}
	return time.Time{}
}

// tell gives an event as the checker knows it; nil where it does not.
func (f Facts) tell(e Event) check.Event {
	switch e := e.(type) {
	case check.Handled:
		e.Group = f.other(e.Group)
		return e
	case check.Event: // of a client
		return e
	case Produced:
		return check.Produced{Range: span(e.Partition.Topic, e.Partition.Partition, e.First, e.Last), Txn: txnOf(e.Writer)}
	case Entry:
		return check.Entry{
			Range: span(e.Source.Topic, e.Source.Partition, e.First, e.Last), Txn: txnOf(e.Writer), Group: f.other(e.Group), Generation: e.Generation,
		}
	case txn.Initialised:
		return check.Initialised{ID: e.TransactionalID, Txn: txnOf(e.Key)}
	case txn.Event:
		if e.Applied {
			return nil
		}
		return check.Ended{ID: e.TransactionalID, Txn: txnOf(e.Writer), Commit: e.Commit, ByProducer: e.ByProducer}
	case share.Event:
		return f.turn(e)
	}
	return nil
}

func (f Facts) turn(e share.Event) check.Event {
	by := txnOf(txn.Key{ProducerID: e.ProducerID, ProducerEpoch: e.ProducerEpoch})
	t := check.Turn{
		Range: span(f.Topics[e.Topic], e.Partition, e.First, e.Last), Group: f.other(e.Group), Count: int(e.Count), To: states[e.To],
	}
	if t.Topic == "" {
		t.Topic = "?" // of a topic that is gone, or another group's
	}
	switch e.Kind {
	case share.EventAcquired:
		return check.Delivered{Turn: t, Member: e.Member}
	case share.EventStaged:
		return check.Staged{Turn: t, Txn: by, Verdict: verdicts[e.Type]}
	case share.EventRolledBack:
		return check.Unstaged{Turn: t, Txn: by}
	case share.EventResolved:
		return check.Resolved{Turn: t, Txn: by}
	case share.EventLost:
		return check.Lost{Turn: t, Txn: by, Why: losses[e.Why]}
	case share.EventDecided:
		return check.Decided{Turn: t, Verdict: verdicts[e.Type]}
	case share.EventExpired:
		return check.Expired{Turn: t}
	case share.EventReleased:
		return check.Released{Turn: t}
	case share.EventForgotten:
		return check.Forgotten{Turn: t}
	case share.EventReset:
		if t.Group == "" {
			return check.Reset{At: check.At{Place: t.Place, Offset: t.First}}
		}
	case share.EventStarted:
		if t.Group == "" {
			return check.Started{At: check.At{Place: t.Place, Offset: t.First}}
		}
	}
	return nil
}

// other is a group's name where it is not the one that is judged.
func (f Facts) other(group string) string {
	if group == f.Group {
		return ""
	}
	return group
}

var (
	states = map[share.State]check.State{
		share.Available: check.Available, share.Acquired: check.Acquired, share.TxPending: check.TxPending,
		share.Acknowledged: check.Acknowledged, share.Archived: check.Archived,
	}
	verdicts = map[acks.Type]check.Verdict{acks.Accept: check.Accept, acks.Release: check.Release, acks.Reject: check.Reject, acks.Gap: check.Gap}
	losses   = map[share.LostWhy]check.Loss{share.LostLock: check.LostLock, share.LostLeader: check.LostLeader}
)

func place(topic string, partition int32) check.Place {
	return check.Place{Topic: topic, Partition: partition}
}

func span(topic string, partition int32, first, last int64) check.Range {
	return check.Range{Place: place(topic, partition), First: first, Last: last}
}

func txnOf(k txn.Key) check.Txn { return check.Txn{Producer: k.ProducerID, Epoch: k.ProducerEpoch} }
