package history

import (
	"slices"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
)

// part is a share partition of the group that is judged.
type part struct {
	topic     [16]byte
	partition int32
}

// claim is that a transaction staged a record.
type claim struct {
	by   txn.Key
	lost share.LostWhy // staged no more when the transaction ended
}

// delivery is a record's way through the group.
type delivery struct {
	state    share.State
	count    int16 // deliveries, as the group counts them
	miscount bool  // a delivery did not count one more
	claims   []claim
	accepted bool // by no transaction
	rejected bool // by no transaction
	atLimit  bool // archived since its deliveries were used up
	astray   bool // its acknowledgement went another way than its transaction
}

// transaction is what the broker saw of one.
type transaction struct {
	id       string
	commit   bool  // decided so
	staged   int64 // offsets it staged, of any group
	ours     bool  // of the group that is judged too
	produced []Produced
}

// story is a history, folded for one group.
type story struct {
	deliveries   map[part]map[int64]*delivery // by offset
	transactions map[txn.Key]*transaction
}

func fold(events []Event, group string) story {
	s := story{deliveries: make(map[part]map[int64]*delivery), transactions: make(map[txn.Key]*transaction)}
	for _, e := range events {
		switch e := e.(type) {
		case Produced:
			t := s.transaction(e.Writer)
			t.produced = append(t.produced, e)
		case txn.Event:
			t := s.transaction(e.Writer)
			t.id, t.commit = e.TransactionalID, e.Commit
		case share.Event:
			s.share(e, group)
		}
	}
	return s
}

func (s story) transaction(k txn.Key) *transaction {
	t := s.transactions[k]
	if t == nil {
		t = &transaction{}
		s.transactions[k] = t
	}
	return t
}

func (s story) share(e share.Event, group string) {
	key := txn.Key{ProducerID: e.ProducerID, ProducerEpoch: e.ProducerEpoch}
	commit := false
	switch e.Kind {
	case share.EventStaged, share.EventRolledBack, share.EventResolved:
		t := s.transaction(key)
		t.ours, commit = t.ours || e.Group == group, t.commit
		switch n := e.Last - e.First + 1; e.Kind {
		case share.EventStaged:
			t.staged += n
		case share.EventRolledBack:
			t.staged -= n
		}
	}
	if e.Group != group {
		return
	}
	of := part{e.Topic, e.Partition}
	if s.deliveries[of] == nil {
		s.deliveries[of] = make(map[int64]*delivery)
	}
	for offset := e.First; offset <= e.Last; offset++ {
		if s.deliveries[of][offset] == nil {
			s.deliveries[of][offset] = &delivery{}
		}
		s.deliveries[of][offset].see(e, key, commit)
	}
}

// see takes one event into the record's way; commit is what was decided of the
// transaction key, where the event is of one.
func (d *delivery) see(e share.Event, key txn.Key, commit bool) {
	mine := slices.IndexFunc(d.claims, func(c claim) bool { return c.by == key })
	switch e.Kind {
	case share.EventAcquired:
		d.miscount = d.miscount || e.Count != d.count+1
	case share.EventStaged:
		if mine < 0 {
			d.claims = append(d.claims, claim{by: key})
		} else {
			d.claims[mine].lost = share.LostNot
		}
	case share.EventRolledBack:
		d.claims = slices.DeleteFunc(d.claims, func(c claim) bool { return c.by == key })
	case share.EventLost:
		if mine >= 0 {
			d.claims[mine].lost = e.Why
		}
	case share.EventResolved:
		d.astray = d.astray || mine < 0 || commit != done(e.To)
	case share.EventDecided:
		d.accepted = d.accepted || e.Type == acks.Accept
		d.rejected = d.rejected || e.Type == acks.Reject
	}
	switch e.Kind {
	case share.EventExpired, share.EventReleased, share.EventLost:
		d.atLimit = d.atLimit || e.To == share.Archived
	}
	d.count, d.state = e.Count, e.To
}

// done tells whether a state is final.
func done(s share.State) bool { return s == share.Acknowledged || s == share.Archived }

// committed gives the claims of transactions that committed.
func (s story) committed(d *delivery) []claim {
	return slices.DeleteFunc(slices.Clone(d.claims), func(c claim) bool { return !s.transactions[c.by].commit })
}
