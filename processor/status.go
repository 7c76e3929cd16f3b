package processor

import (
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
)

// Status is a snapshot for health endpoints.
type Status struct {
	Guarantee Guarantee // in force; until Run has found that out, Config's
	Ready     bool      // every member works and has joined the group
	// MissingTopics are those of Topics and DeadLetter that did not exist when it
	// was last looked, at most 30 s ago.
	MissingTopics []string
	Members       []MemberStatus
}

// MemberStatus is one member's row.
type MemberStatus struct {
	TransactionalID    string // of its first id; the others begin with it
	Member             string // member id; empty before it has joined
	State              string // "new", "starting", "working", "stopping", "stopped" or "failed"
	Held               int    // records acquired and not settled, as the member saw last
	Waiting            int    // of those, what waits for another transaction to be decided (guarantee Ledger)
	LastCommit         time.Time
	Committed, Aborted int64 // transactions; one that the ledger refused counts as aborted
	Err                error // the last that was not fatal to a record alone, or why the member failed
}

// state of a member.
type state uint8

const (
	created state = iota
	starting
	working
	stopping
	stopped
	broken
)

func (s state) String() string {
	return [...]string{"new", "starting", "working", "stopping", "stopped", "failed"}[s]
}

// see changes the member's row.
func (m *member) see(change func(*MemberStatus)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.row)
}

func (m *member) enter(s state) { m.see(func(r *MemberStatus) { r.State = s.String() }) }

// never says that the member will not begin, and why; nil: it was stopped before.
func (m *member) never(err error) {
	m.see(func(r *MemberStatus) {
		r.State = stopped.String()
		if err != nil {
			r.State, r.Err = broken.String(), err
		}
	})
}

func (m *member) status() MemberStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	row := m.row
	if m.consumer != nil {
		row.Member = m.consumer.ShareGroupMetadata().MemberID()
	}
	return row
}

// use makes consumer and producer known to status.
func (m *member) use(c *shareconsumer.Consumer, p *producer.Producer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.consumer, m.producer = c, p
}

// count notes how a transaction has ended.
func (m *member) count(t *transaction) {
	if len(t.units) == 0 {
		return // it never began
	}
	m.see(func(r *MemberStatus) {
		switch t.outcome {
		case sharetxn.Committed:
			r.Committed++
			r.LastCommit = time.Now()
		case sharetxn.Aborted:
			r.Aborted++
			r.Err = t.err
		case sharetxn.Unknown:
			r.Err = t.err
		}
	})
}
