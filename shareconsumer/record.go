package shareconsumer

import (
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Record is one delivery. The methods of kgo's share records (DeliveryCount,
// AcquisitionDeadline, Ack) are overridden: on the embedded record they would
// answer for kgo's own share consumer, that is, with 0 and a no-op. Its
// methods are safe for concurrent use.
type Record struct {
	*kgo.Record
	TopicID [16]byte
	count   int32
	c       *Consumer

	// The rest belongs to c.mu.
	lease   *lease // where its lock is
	batch   *Batch
	verdict acks.Type // Gap: none
	gone    bool      // not ours any more, or decided
}

// Position implements acks.Positioned.
func (r *Record) Position() (acks.TopicIDPartition, int64) {
	return acks.TopicIDPartition{TopicID: r.TopicID, Topic: r.Topic, Partition: r.Partition}, r.Offset
}

func (r *Record) tp() acks.TopicIDPartition {
	tp, _ := r.Position()
	return tp
}

// DeliveryCount is how often the record was delivered, this time included:
// from 1 to the group's limit (default 5), after which the broker archives it.
func (r *Record) DeliveryCount() int32 { return r.count }

// AcquisitionDeadline is when the record's lock ends; renewing moves it. It is
// counted from when the fetch or renewal was sent, so it is never later than
// the broker's, and earlier by at most the fetch's wait (see MaxWait) and its
// way over the network.
func (r *Record) AcquisitionDeadline() time.Time {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	return r.lease.deadline
}

// Held tells whether the record is still this member's: neither decided for
// good nor lost, by a lock that ended as far as is known here, a fenced member
// or a broken session. What it says may be old by the time it is read; only
// what ends the batch proves it.
func (r *Record) Held() bool {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	return !r.gone && r.lease.lost == nil && time.Now().Before(r.lease.deadline)
}

// Accept decides that the record is processed. The last verdict before the
// batch is bound counts. The verbs do no I/O and cannot fail; one that comes
// too late is reported by whatever ends the batch.
func (r *Record) Accept() { r.decide(acks.Accept) }

// Reject decides that the record is never to be delivered again.
func (r *Record) Reject() { r.decide(acks.Reject) }

// Release decides to give the record back for another delivery. On its last
// delivery the broker archives it then.
func (r *Record) Release() { r.decide(acks.Release) }

// Ack is the verb as a value: Accept, Reject or Release. Errors are of class
// usage.
func (r *Record) Ack(t acks.Type) error {
	switch t {
	case acks.Accept, acks.Reject, acks.Release:
		r.decide(t)
		return nil
	case acks.Gap, acks.Renew:
	}
	return usage("Ack", "%v is not a verdict; accept, reject and release are", t)
}

// Verdict is the present verdict; ok is false if there is none.
func (r *Record) Verdict() (t acks.Type, ok bool) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	return r.verdict, r.verdict != acks.Gap
}

func (r *Record) decide(t acks.Type) {
	c := r.c
	c.mu.Lock()
	late := r.gone || r.batch.state == frozen
	if late {
		if r.batch.state == frozen {
			r.batch.late = append(r.batch.late, r)
		}
	} else {
		r.verdict = t
	}
	c.mu.Unlock()
	if late {
		c.misuseLate(r, t)
	}
}

// misuseLate tells the hooks of a verdict; c.mu is not held.
func (c *Consumer) misuseLate(r *Record, t acks.Type) {
	c.misuse("verdict "+t.String()+" came too late and was dropped", where(r))
}
