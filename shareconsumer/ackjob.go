package shareconsumer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ackJob is one CommitSync, CommitAsync, release or renewal; its pieces go to
// one session each.
type ackJob struct {
	c      *Consumer
	urgent bool // somebody waits
	renew  bool
	at     time.Time               // queued
	typ    func(*Record) acks.Type // of a record when it is sent

	// Under c.mu.
	left int // pieces not answered
	errs []error
	done chan struct{}
}

// piece is a job's part for one broker.
type piece struct {
	job     *ackJob
	records map[partKey][]*Record // nil for holes: their set is there from the start
	set     acks.Set              // what is sent; of records it is made when they are
	stale   []*Record             // delivered again before they could be sent
}

// plain makes a job of decided records and queues it; c.mu is held.
func (c *Consumer) plain(rs []*Record, urgent bool) *ackJob {
	return c.queue(&ackJob{c: c, urgent: urgent, typ: func(r *Record) acks.Type { return r.verdict }}, rs)
}

// holes queues offsets that hold no record for us: they would stay acquired
// otherwise. c.mu is held.
func (s *session) holes(tp acks.TopicIDPartition, runs []acks.Run) {
	p := &piece{job: &ackJob{c: s.c, at: time.Now(), left: 1, done: make(chan struct{})}}
	for _, r := range runs {
		if err := p.set.AddRange(tp, r.First, r.Last, r.Type); err != nil { // disjoint and in order, so never
			s.c.core.Logger().Error("sharetxn: hole not acknowledged", "partition", tp.String(), "err", err)
		}
	}
	s.queue = append(s.queue, p)
}

// renew queues a renewal; c.mu is held.
func (c *Consumer) renew(rs []*Record) *ackJob {
	job := c.queue(&ackJob{c: c, urgent: true, renew: true, typ: func(*Record) acks.Type { return acks.Renew }}, rs)
	for _, r := range rs {
		r.renewal = job
	}
	return job
}

// queue gives each session its piece; what is lost already fails here. c.mu is
// held.
func (c *Consumer) queue(job *ackJob, rs []*Record) *ackJob {
	job.at, job.done = time.Now(), make(chan struct{})
	pieces := make(map[int32]*piece)
	for _, r := range rs {
		switch {
		case r.lost != nil && job.typ(r) == acks.Release:
			continue // it is back already
		case r.lost != nil || c.sessions[r.node] == nil:
			job.errs = append(job.errs, job.stale(r))
			continue
		}
		p := pieces[r.node]
		if p == nil {
			p = &piece{job: job, records: make(map[partKey][]*Record)}
			pieces[r.node] = p
		}
		k := partKey{r.TopicID, r.Partition}
		p.records[k] = append(p.records[k], r)
	}
	job.left = len(pieces)
	if job.left == 0 {
		job.finish()
		return job
	}
	for node, p := range pieces {
		s := c.sessions[node]
		s.queue = append(s.queue, p)
		s.signal()
	}
	return job
}

func (j *ackJob) op() string { return opOf(j.renew) }

func opOf(renew bool) string {
	if renew {
		return "Renew"
	}
	return "ShareAcknowledge"
}

// stale is the failure of records that are not held any more.
func (j *ackJob) stale(rs ...*Record) error {
	return &sharetxn.Error{Op: j.op(), Class: sharetxn.ClassAbortable, Group: j.c.group, Topic: rs[0].Topic, Partition: rs[0].Partition, Err: recordsError(staleBecause(rs[0]), rs...)}
}

// finish ends the job; c.mu is held.
func (j *ackJob) finish() {
	close(j.done)
	if j.renew {
		j.c.wakeRenewer()
	}
}

// wait gives the job's errors, joined. When ctx ends first the
// acknowledgements are under way: their outcome is unknown.
func (j *ackJob) wait(ctx context.Context) error {
	select {
	case <-j.done:
	case <-ctx.Done():
		return &sharetxn.Error{Op: j.op(), Class: sharetxn.ClassUnknown, Group: j.c.group, Err: fmt.Errorf("%w: %w", errUnanswered, context.Cause(ctx))}
	}
	j.c.mu.Lock()
	defer j.c.mu.Unlock()
	return errors.Join(j.errs...)
}

var errUnanswered = errors.New("acknowledgements sent but not answered")

// errAgain is why an older delivery is not held any more.
var errAgain = errors.New("the record was delivered to this member again")

// partitions tells which partitions the piece is about.
func (p *piece) partitions(yield func(partKey) bool) {
	for k := range p.records {
		if !yield(k) {
			return
		}
	}
	if p.records == nil {
		for tp := range p.set.Partitions() {
			if !yield(keyOf(tp)) {
				return
			}
		}
	}
}

// load makes the set that is sent. An acknowledgement names no delivery, so one
// of a record that this member was given again meanwhile would hit the new
// delivery: it is left out. c.mu is held.
func (p *piece) load() {
	for k, rs := range p.records {
		for _, r := range rs {
			if newer := p.job.c.index[k][r.Offset]; newer != nil && newer != r {
				r.lost = errAgain
				p.stale = append(p.stale, r)
				continue
			}
			tp, o := r.Position()
			if err := p.set.Add(tp, o, p.job.typ(r)); err != nil {
				p.job.errs = append(p.job.errs, err)
			}
		}
	}
}

// failure is why a range of one partition was not taken.
type failure struct {
	run acks.Run
	err error
}

// everything is a range that covers every offset.
var everything = acks.Run{First: 0, Last: math.MaxInt64 - 1}

func (f failure) covers(r *Record) bool { return f.run.First <= r.Offset && r.Offset <= f.run.Last }

// answered tells a piece how its partitions went, and the callback.
func (p *piece) answered(failures map[partKey][]failure) {
	c := p.job.c
	var results []AckResult
	c.mu.Lock()
	for tp, bs := range p.set.Partitions() {
		var errs []error
		for _, f := range failures[keyOf(tp)] {
			if !touches(bs, f.run) {
				continue
			}
			code := codeOf(f.err)
			errs = append(errs, &sharetxn.Error{
				Op: p.job.op(), Class: sharetxn.ClassOf(f.err), Code: code, FromBroker: code != 0,
				Group: c.group, Topic: tp.Topic, Partition: tp.Partition, Err: p.cause(tp, f),
			})
		}
		p.job.errs = append(p.job.errs, errs...)
		results = append(results, AckResult{Partition: tp, Batches: bs, Err: errors.Join(errs...)})
	}
	if len(p.stale) > 0 {
		p.job.errs = append(p.job.errs, p.job.stale(p.stale...))
	}
	if p.job.renew {
		p.notRenewed(failures)
	}
	p.job.left--
	if p.job.left == 0 {
		p.job.finish()
	}
	c.mu.Unlock()
	if fn := c.cfg.onAcknowledged; fn != nil && !p.job.renew && p.records != nil {
		for _, r := range results {
			fn(r)
		}
		for _, r := range p.stale {
			tp, o := r.Position()
			fn(AckResult{Partition: tp, Batches: []acks.AcknowledgementBatch{{FirstOffset: o, LastOffset: o, Types: []acks.Type{p.job.typ(r)}}}, Err: p.job.stale(r)})
		}
	}
}

// touches tells whether the batches have an offset in run.
func touches(bs []acks.AcknowledgementBatch, run acks.Run) bool {
	return slices.ContainsFunc(bs, func(b acks.AcknowledgementBatch) bool {
		return b.FirstOffset <= run.Last && run.First <= b.LastOffset
	})
}

// cause is what failed, with the records it is about where there are any.
func (p *piece) cause(tp acks.TopicIDPartition, f failure) error {
	var rs []*Record
	for _, r := range p.records[keyOf(tp)] {
		if f.covers(r) && !slices.Contains(p.stale, r) {
			rs = append(rs, r)
		}
	}
	err := f.err
	if e := (*sharetxn.Error)(nil); errors.As(err, &e) { // told anew, with the partition
		err = e.Err
	}
	if !p.job.renew && codeOf(f.err) == kerr.InvalidRecordState.Code {
		err = fmt.Errorf("%w: %w", sharetxn.ErrStale, err)
	}
	if len(rs) == 0 {
		return err
	}
	return recordsError(err, rs...)
}

// fail fails the whole piece.
func (p *piece) fail(err error) {
	failures := make(map[partKey][]failure)
	for tp := range p.set.Partitions() {
		failures[keyOf(tp)] = []failure{{everything, err}}
	}
	p.answered(failures)
}

// merge puts pieces together: what goes into one request.
func merge(pieces []*piece) (all acks.Set, err error) {
	for _, p := range pieces {
		if e := all.Merge(&p.set); e != nil {
			err = e
		}
	}
	return all, err
}

// bisect halves acknowledgements that failed together; ok is false for a
// single offset.
func bisect(runs []acks.Run) (a, b []acks.Run, ok bool) {
	if len(runs) > 1 {
		return runs[:len(runs)/2], runs[len(runs)/2:], true
	}
	r := runs[0]
	if r.First == r.Last {
		return nil, nil, false
	}
	mid := r.First + (r.Last-r.First)/2
	return []acks.Run{{First: r.First, Last: mid, Type: r.Type}}, []acks.Run{{First: mid + 1, Last: r.Last, Type: r.Type}}, true
}

// runsOf flattens batches.
func runsOf(bs []acks.AcknowledgementBatch) []acks.Run {
	var out []acks.Run
	for _, b := range bs {
		out = slices.AppendSeq(out, b.Runs())
	}
	return out
}

func codeOf(err error) int16 {
	var e *sharetxn.Error
	if errors.As(err, &e) && e.FromBroker {
		return e.Code
	}
	return 0
}
