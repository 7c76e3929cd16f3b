package shareconsumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
)

// ackJob is one CommitSync, CommitAsync, release or renewal; its pieces go to
// one session each.
type ackJob struct {
	c      *Consumer
	urgent bool // somebody waits
	renew  bool
	batch  *Batch // of a renewal

	// Under c.mu.
	left int // pieces not answered
	errs []error
	done chan struct{}
}

// piece is a job's part for one broker.
type piece struct {
	job     *ackJob
	set     acks.Set
	records map[partKey][]*Record
}

// plain makes a job of decided records and queues it; c.mu is held.
func (c *Consumer) plain(rs []*Record, urgent bool) *ackJob {
	return c.queue(&ackJob{c: c, urgent: urgent, done: make(chan struct{})}, rs, func(r *Record) acks.Type { return r.verdict })
}

// gaps queues offsets that hold no record: they would stay acquired otherwise.
func (s *session) gaps(tp acks.TopicIDPartition, runs []acks.Run) {
	job := &ackJob{c: s.c, left: 1, done: make(chan struct{})}
	p := &piece{job: job}
	for _, r := range runs {
		if err := p.set.AddRange(tp, r.First, r.Last, r.Type); err != nil {
			s.c.core.Logger().Error("sharetxn: gap not acknowledged", "partition", tp.String(), "err", err)
		}
	}
	s.queue = append(s.queue, p)
}

// renew queues a renewal of what the batch still holds; c.mu is held.
func (c *Consumer) renew(b *Batch) *ackJob {
	b.renewal++
	return c.queue(&ackJob{c: c, urgent: true, renew: true, batch: b, done: make(chan struct{})}, b.records, func(*Record) acks.Type { return acks.Renew })
}

// queue gives each session its piece; what is lost already fails here. c.mu is
// held.
func (c *Consumer) queue(job *ackJob, rs []*Record, typ func(*Record) acks.Type) *ackJob {
	pieces := make(map[int32]*piece)
	for _, r := range rs {
		s := c.sessions[r.node]
		switch {
		case r.lost != nil && typ(r) == acks.Release:
			continue // it is back already
		case r.lost != nil || s == nil:
			job.errs = append(job.errs, &sharetxn.Error{Op: job.op(), Class: sharetxn.ClassAbortable, Group: c.group, Err: recordsError(staleBecause(r), r)})
			continue
		}
		p := pieces[r.node]
		if p == nil {
			p = &piece{job: job, records: make(map[partKey][]*Record)}
			pieces[r.node] = p
		}
		tp, o := r.Position()
		if err := p.set.Add(tp, o, typ(r)); err != nil {
			job.errs = append(job.errs, err)
			continue
		}
		p.records[keyOf(tp)] = append(p.records[keyOf(tp)], r)
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

func (j *ackJob) op() string {
	if j.renew {
		return "Renew"
	}
	return "ShareAcknowledge"
}

// finish ends the job; c.mu is held.
func (j *ackJob) finish() {
	close(j.done)
	if b := j.batch; b != nil {
		b.renewal--
		if b.renewal == 0 && b.quiet != nil {
			close(b.quiet)
			b.quiet = nil
		}
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

// failure is why a range of one partition was not taken.
type failure struct {
	run acks.Run
	err error
}

// answered tells a piece how its partitions went, and the callback.
func (p *piece) answered(failures map[partKey][]failure) {
	c := p.job.c
	var results []AckResult
	c.mu.Lock()
	for tp, bs := range p.set.Partitions() {
		var errs []error
		for _, f := range failures[keyOf(tp)] {
			if hit := p.hit(tp, f.run); hit.Len() > 0 {
				errs = append(errs, &sharetxn.Error{
					Op: p.job.op(), Class: classOf(f.err), Code: codeOf(f.err), FromBroker: codeOf(f.err) != 0,
					Group: c.group, Topic: tp.Topic, Partition: tp.Partition, Err: p.named(tp, f),
				})
				if p.job.renew {
					p.renewFailed(tp, f)
				}
			}
		}
		p.job.errs = append(p.job.errs, errs...)
		results = append(results, AckResult{Partition: tp, Batches: bs, Err: errors.Join(errs...)})
	}
	p.job.left--
	if p.job.left == 0 {
		p.job.finish()
	}
	c.mu.Unlock()
	if fn := c.cfg.onAcknowledged; fn != nil && !p.job.urgent && p.records != nil {
		for _, r := range results {
			fn(r)
		}
	}
}

// hit is the part of the piece that a failed run touches.
func (p *piece) hit(tp acks.TopicIDPartition, run acks.Run) *acks.Set {
	out := &acks.Set{}
	for own, bs := range p.set.Partitions() {
		if !own.Same(tp) {
			continue
		}
		for _, b := range bs {
			for r := range b.Runs() {
				if first, last := max(r.First, run.First), min(r.Last, run.Last); first <= last {
					_ = out.AddRange(tp, first, last, r.Type) // parts of a valid set are valid
				}
			}
		}
	}
	return out
}

// named wraps the failure with the records it is about, where there are any.
func (p *piece) named(tp acks.TopicIDPartition, f failure) error {
	var rs []*Record
	for _, r := range p.records[keyOf(tp)] {
		if f.run.First <= r.Offset && r.Offset <= f.run.Last {
			rs = append(rs, r)
		}
	}
	if len(rs) == 0 {
		return f.err
	}
	return recordsError(f.err, rs...)
}

// fail fails the whole piece.
func (p *piece) fail(err error) {
	failures := make(map[partKey][]failure)
	for tp := range p.set.Partitions() {
		failures[keyOf(tp)] = []failure{{acks.Run{First: 0, Last: 1<<63 - 2}, err}}
	}
	p.answered(failures)
}

// partitions of several pieces together: what goes into one request.
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

func classOf(err error) sharetxn.Class { return sharetxn.ClassOf(err) }

func codeOf(err error) int16 {
	var e *sharetxn.Error
	if errors.As(err, &e) && e.FromBroker {
		return e.Code
	}
	return 0
}

// keysOf is the identity of a set's partitions.
func keysOf(set *acks.Set) []partKey {
	m := make(map[partKey]struct{})
	for tp := range set.Partitions() {
		m[keyOf(tp)] = struct{}{}
	}
	return slices.Collect(maps.Keys(m))
}
