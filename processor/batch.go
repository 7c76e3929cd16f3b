package processor

import (
	"fmt"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Batch is the input of a BatchHandler, valid until that returns. Not safe for
// concurrent use.
type Batch struct {
	records []*Record
	index   map[*Record]int
	decided []bool
	verdict []decision
	misuse  error
}

// decision is what was decided for some records together.
type decision struct {
	records []int
	kind    kind
	outputs []*kgo.Record
	err     error
	own     bool // a failure of the record itself, not of a call with others
	backoff time.Duration
}

// kind of a decision.
type kind uint8

const (
	accepted kind = iota
	rejected
	released
	failed
)

func (k kind) String() string {
	return [...]string{"accept", "reject", "release", "fail"}[k]
}

// NewBatch makes the input for a test of a BatchHandler; what it decided
// Decisions tells.
func NewBatch(records ...*Record) *Batch {
	b := &Batch{records: records, index: make(map[*Record]int, len(records)), decided: make([]bool, len(records))}
	for i, r := range records {
		b.index[r] = i
	}
	return b
}

// Records are the records to decide, in the order in which they came.
func (b *Batch) Records() []*Record { return slices.Clone(b.records) }

// Accept accepts in and ties the outputs to it.
func (b *Batch) Accept(in *Record, outputs ...*kgo.Record) {
	b.one(in, decision{kind: accepted, outputs: outputs})
}

// AcceptRest accepts all undecided records and ties the outputs to them
// together: an aggregate. After an aborted transaction they are handled again
// in smaller parts, so an aggregate must be right for any part of a poll.
func (b *Batch) AcceptRest(outputs ...*kgo.Record) {
	d := decision{kind: accepted, outputs: outputs}
	for i, done := range b.decided {
		if !done {
			b.decided[i] = true
			d.records = append(d.records, i)
		}
	}
	switch {
	case len(d.records) > 0:
		b.verdict = append(b.verdict, d)
	case len(outputs) > 0:
		b.wrong("AcceptRest: outputs, and no undecided record to tie them to")
	}
}

// Reject is Reject for a Handler.
func (b *Batch) Reject(in *Record, reason error) {
	b.one(in, decision{kind: rejected, err: given(reason)})
}

// Release is Release for a Handler.
func (b *Batch) Release(in *Record, backoff time.Duration) {
	b.one(in, decision{kind: released, backoff: backoff})
}

// Fail fails one record as an error of a Handler does.
func (b *Batch) Fail(in *Record, err error) {
	b.one(in, decision{kind: failed, err: given(err), own: true})
}

func (b *Batch) one(in *Record, d decision) {
	i, ok := b.index[in]
	switch {
	case !ok:
		b.wrong("a record that is not of this batch")
	case b.decided[i]:
		b.wrong("%s-%d offset %d is decided twice", in.Topic, in.Partition, in.Offset)
	default:
		b.decided[i] = true
		d.records = []int{i}
		b.verdict = append(b.verdict, d)
	}
}

// wrong notes the first misuse; the whole call then fails.
func (b *Batch) wrong(format string, args ...any) {
	if b.misuse == nil {
		b.misuse = usage("BatchHandler", format, args...)
	}
}

// Decision is what a BatchHandler decided for one record.
type Decision struct {
	Verdict string // "accept", "reject", "release", "fail"; empty: undecided
	Outputs []*kgo.Record
	Err     error // reason or failure
	Backoff time.Duration
}

// Decisions tells what was decided, by record and in its order, for tests. The
// outputs of AcceptRest are told with its first record.
func (b *Batch) Decisions() []Decision {
	out := make([]Decision, len(b.records))
	for _, d := range b.verdict {
		for n, i := range d.records {
			out[i] = Decision{Verdict: d.kind.String(), Err: d.err, Backoff: d.backoff}
			if n == 0 {
				out[i].Outputs = d.outputs
			}
		}
	}
	return out
}

// conclude gives what counts of a call that returned err: decisions for every
// record.
func (b *Batch) conclude(err error) []decision {
	if b.misuse != nil {
		return failAll(len(b.records), b.misuse)
	}
	rest := decision{kind: failed, err: err, own: len(b.records) == 1}
	for i, done := range b.decided {
		if !done {
			rest.records = append(rest.records, i)
		}
	}
	switch {
	case len(rest.records) == 0 && err == nil:
		return b.verdict
	case err == nil:
		r := b.records[rest.records[0]]
		return failAll(len(b.records), fmt.Errorf("%w: %d, the first is %s-%d offset %d", sharetxn.ErrUndecided, len(rest.records), r.Topic, r.Partition, r.Offset))
	case len(rest.records) == 0:
		return b.verdict // all were decided before it failed
	}
	return append(b.verdict, rest)
}

// failAll is what counts of a call of which nothing does.
func failAll(records int, err error) []decision {
	d := decision{kind: failed, err: err, own: records == 1}
	for i := range records {
		d.records = append(d.records, i)
	}
	return []decision{d}
}
