package shareconsumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	at     time.Time // queued

	// patient is until when it may wait for company; zero: nothing was said of that.
	// Under c.mu.
	patient time.Time

	// Under c.mu.
	left int // pieces not answered
	errs []error
	done chan struct{}
}

func (c *Consumer) newJob(urgent, renew bool) *ackJob {
	return &ackJob{c: c, urgent: urgent, renew: renew, at: time.Now(), done: make(chan struct{})}
}

// plain makes a job of decided records and queues it; c.mu is held.
func (c *Consumer) plain(rs []*Record, urgent bool) *ackJob {
	job, _ := c.settleBy(rs, urgent)
	return job
}

// settleBy is plain; what is lost already fails here, and is given too. c.mu is
// held.
func (c *Consumer) settleBy(rs []*Record, urgent bool) (*ackJob, []part) {
	out := dispatch{job: c.newJob(urgent, false)}
	var lost []part
	for l, rs := range byLease(rs) {
		var to *part
		if l.lost == nil {
			to = out.to(l)
		} else {
			to = &part{tp: l.tp}
		}
		for _, r := range rs {
			if l.lost != nil && r.verdict == acks.Release {
				continue // it is back already
			}
			to.add(r.Offset, r.verdict)
		}
		if l.lost != nil && len(to.runs) > 0 {
			out.job.errs = append(out.job.errs, out.job.stale(*to, l.lost))
			lost = append(lost, *to)
		}
	}
	return out.queue(), lost
}

// renew queues a renewal of polled records; c.mu is held.
func (c *Consumer) renew(rs []*Record) *ackJob {
	out := dispatch{job: c.newJob(true, true)}
	for _, r := range rs {
		if l := r.lease; l.lost != nil {
			out.job.errs = append(out.job.errs, out.job.stale(part{l.tp, []acks.Run{{First: r.Offset, Last: r.Offset}}}, l.lost))
			continue
		}
		out.to(r.lease).add(r.Offset, acks.Renew)
	}
	return out.renewing()
}

// renewWaiting queues a renewal of leases that nobody has polled; c.mu is held.
func (c *Consumer) renewWaiting(ls []*lease) {
	out := dispatch{job: c.newJob(true, true)}
	for _, l := range ls {
		to := out.to(l)
		for _, r := range l.waiting {
			to.add(r.Offset, acks.Renew)
		}
	}
	out.renewing()
}

// renewing notes the job with the leases that it is about, cut so that they are
// about nothing else, and queues it.
func (d *dispatch) renewing() *ackJob {
	for _, p := range d.pieces {
		for _, pt := range p.parts {
			for l := range p.s.leases(pt) {
				l.renewal = d.job
			}
		}
	}
	return d.queue()
}

// releaseWaiting queues the release of leases that nobody has polled, and takes
// them off the books; c.mu is held.
func (c *Consumer) releaseWaiting(ls []*lease) {
	out := dispatch{job: c.newJob(false, false)}
	for _, l := range ls {
		to := out.to(l)
		for _, r := range l.waiting {
			to.add(r.Offset, acks.Release)
		}
		c.unbuffer(l)
	}
	out.queue()
}

// holes queues offsets that hold no record for us: they would stay acquired
// otherwise. c.mu is held.
func (s *session) holes(tp acks.TopicIDPartition, runs []acks.Run) {
	slices.SortFunc(runs, byOffset)
	job := s.c.newJob(false, false)
	job.left = 1
	s.queue = append(s.queue, &piece{job: job, s: s, holes: true, parts: []part{{tp, runs}}})
}

// part is what a piece says of one partition.
type part struct {
	tp   acks.TopicIDPartition
	runs []acks.Run // ascending and disjoint
}

// add puts an offset at its place, which is mostly the last.
func (p *part) add(offset int64, t acks.Type) {
	n := len(p.runs)
	switch {
	case n == 0 || p.runs[n-1].Last < offset-1 || (p.runs[n-1].Last == offset-1 && p.runs[n-1].Type != t):
		p.runs = append(p.runs, acks.Run{First: offset, Last: offset, Type: t})
	case p.runs[n-1].Last == offset-1:
		p.runs[n-1].Last = offset
	default: // out of order
		i, _ := slices.BinarySearchFunc(p.runs, offset, func(r acks.Run, o int64) int { return cmp.Compare(r.Last, o) })
		p.runs = slices.Insert(p.runs, i, acks.Run{First: offset, Last: offset, Type: t})
	}
}

// addRun puts a run of offsets that are not there yet at its place.
func (p *part) addRun(r acks.Run) {
	i, _ := slices.BinarySearchFunc(p.runs, r.First, func(x acks.Run, o int64) int { return cmp.Compare(x.Last, o) })
	p.runs = slices.Insert(p.runs, i, r)
}

func byOffset(x, y acks.Run) int { return cmp.Compare(x.First, y.First) }

// piece is a job's part for one broker.
type piece struct {
	job      *ackJob
	s        *session
	holes    bool // of no record: nobody waits for it
	parts    []part
	stale    []part // delivered again before they could be sent
	failures []failure
	halves   int // requests that it cost beyond the first
}

// failure is why a part was not taken, or some of it.
type failure struct {
	part
	err error
}

func (p *piece) part(k partKey) *part {
	for i := len(p.parts) - 1; i >= 0; i-- {
		if keyOf(p.parts[i].tp) == k {
			return &p.parts[i]
		}
	}
	return nil
}

// supersede takes back what is not sent yet of an older delivery; c.mu is held.
func (p *piece) supersede(k partKey, x span) {
	pt := p.part(k)
	if pt == nil || len(pt.runs) == 0 || pt.runs[len(pt.runs)-1].Last < x.first || x.last < pt.runs[0].First {
		return
	}
	outside, inside := apart(pt.runs, []span{x})
	pt.runs = outside
	if len(inside) > 0 {
		p.stale = append(p.stale, part{pt.tp, inside})
	}
}

// dispatch parts a job by broker.
type dispatch struct {
	job    *ackJob
	pieces []*piece
}

// to gives where acknowledgements of a lease go; good until it is asked again.
func (d *dispatch) to(l *lease) *part {
	i := slices.IndexFunc(d.pieces, func(p *piece) bool { return p.s == l.s })
	if i < 0 {
		i = len(d.pieces)
		d.pieces = append(d.pieces, &piece{job: d.job, s: l.s})
	}
	p := d.pieces[i]
	if pt := p.part(l.key()); pt != nil {
		return pt
	}
	p.parts = append(p.parts, part{tp: l.tp})
	return &p.parts[len(p.parts)-1]
}

// queue gives each session its piece; c.mu is held.
func (d *dispatch) queue() *ackJob {
	d.job.left = len(d.pieces)
	if d.job.left == 0 {
		d.job.finish()
	}
	for _, p := range d.pieces {
		p.s.queue = append(p.s.queue, p)
		p.s.signal()
	}
	return d.job
}

func (j *ackJob) op() string { return opOf(j.renew) }

func opOf(renew bool) string {
	if renew {
		return "Renew"
	}
	return "ShareAcknowledge"
}

// stale is the failure of offsets that are not held any more.
func (j *ackJob) stale(p part, why error) error {
	return &sharetxn.Error{Op: j.op(), Class: sharetxn.ClassAbortable, Group: j.c.group, Topic: p.tp.Topic, Partition: p.tp.Partition, Err: p.named(fmt.Errorf("%w: %w", sharetxn.ErrStale, why))}
}

// named is an error that names the part's offsets.
func (p part) named(err error) error {
	return offsetsError(p.tp.Topic, p.tp.Partition, err, p.ranges)
}

func (p part) ranges(yield func(first, last int64) bool) {
	for _, r := range p.runs {
		if !yield(r.First, r.Last) {
			return
		}
	}
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

// answered tells the piece's job how its partitions went, and the callback.
func (p *piece) answered() {
	c := p.job.c
	var results []AckResult
	told := c.cfg.onAcknowledged != nil && !p.job.renew && !p.holes
	note := func(pt part, err error) {
		if told {
			results = append(results, AckResult{Partition: pt.tp, Batches: batchesOf(pt), Err: err})
		}
	}
	c.mu.Lock()
	for _, pt := range p.parts {
		if len(pt.runs) == 0 {
			continue
		}
		var errs []error
		for _, f := range p.failures {
			if f.tp.Same(pt.tp) {
				errs = append(errs, p.failed(f))
			}
		}
		p.job.errs = append(p.job.errs, errs...)
		note(pt, errors.Join(errs...))
	}
	for _, pt := range p.stale {
		err := p.job.stale(pt, errAgain)
		p.job.errs = append(p.job.errs, err)
		note(pt, err)
	}
	if p.job.renew {
		p.notRenewed()
	}
	p.job.left--
	if p.job.left == 0 {
		p.job.finish()
	}
	c.mu.Unlock()
	for _, r := range results {
		c.cfg.onAcknowledged(r)
	}
}

// failed is a failure as it is told: with the partition and the offsets.
func (p *piece) failed(f failure) error {
	code := codeOf(f.err)
	err := f.err
	if e, ok := errors.AsType[*sharetxn.Error](err); ok { // told anew, with the partition
		err = e.Err
	}
	if !p.job.renew && code == kerr.InvalidRecordState.Code {
		err = fmt.Errorf("%w: %w", sharetxn.ErrStale, err)
	}
	return &sharetxn.Error{
		Op: p.job.op(), Class: sharetxn.ClassOf(f.err), Code: code, FromBroker: code != 0,
		Group: p.job.c.group, Topic: f.tp.Topic, Partition: f.tp.Partition, Err: f.named(err),
	}
}

// fail fails the whole piece.
func (p *piece) fail(err error) {
	for _, pt := range p.parts {
		p.failures = append(p.failures, failure{pt, err})
	}
	p.answered()
}

func codeOf(err error) int16 {
	if e, ok := errors.AsType[*sharetxn.Error](err); ok && e.FromBroker {
		return e.Code
	}
	return 0
}
