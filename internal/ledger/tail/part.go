package tail

import (
	"errors"
	"fmt"
	"sync"

	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// part is one partition of the ledger: its index, and how far that can be
// trusted.
type part struct {
	n int32

	mu sync.Mutex
	ix *index.Index
	// until is the end of the log when reading began, anew after a gap too: what
	// is below must be read before anything is said of a record.
	until int64
	// jumped: kgo went on behind a gap by itself, and where the log ends now is not
	// known: the generation's copy lies further on.
	jumped bool
	// lost: the log is not the one that was read. Nothing is read on, and nothing
	// is said, before all of it is read anew.
	lost bool
	// gapped: there was a gap at some time, so that starts count only together
	// with the end of the log.
	gapped bool
	topics map[[16]byte]bool // that have entries
	fresh  freshness

	moved signal // it was read on
}

// errLost: the log does not go on where the tail is.
var errLost = errors.New("the ledger's log was cut off behind what was read of it")

func newPart(group string, n int32, log bounds) *part {
	return &part{n: n, ix: index.New(group, n, log.start), until: log.end, topics: make(map[[16]byte]bool)}
}

// resumption is where a partition is read on.
type resumption uint8

const (
	goOn resumption = iota // where it was
	skip                   // at the log's start: what lay before was deleted
	anew                   // at the log's start, with nothing known
)

// settle brings the index to where the log can be read on; skipped are the
// offsets that are known no more, or never were.
func (p *part) settle(group string, log bounds) (how resumption, skipped int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch next := p.ix.Next(); {
	case p.lost || next > log.end:
		p.ix, p.until, p.lost, p.jumped = index.New(group, p.n, log.start), log.end, false, false
		p.gapped = true // what was cut off may have said anything
		return anew, max(0, next-log.end), p.ix.Gap(log.start)
	case next < log.start:
		skipped, err = p.skipTo(log)
		return skip, skipped, err
	default:
		if p.jumped {
			p.until, p.jumped = max(p.until, log.end), false
		}
		return goOn, 0, nil
	}
}

// forward takes note of a log that begins behind the next offset, for who is not
// the one that reads: what was read since the log was asked for says nothing about
// its end.
func (p *part) forward(log bounds) (skipped int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost || p.ix.Next() >= log.start {
		return 0, nil
	}
	return p.skipTo(log)
}

func (p *part) skipTo(log bounds) (skipped int64, err error) {
	skipped = log.start - p.ix.Next()
	p.until, p.gapped, p.jumped = max(p.until, log.end), true, false
	return skipped, p.ix.Gap(log.start)
}

// lose says that nothing in the index counts any more.
func (p *part) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
}

// at is the next offset, and the one below which all must be read.
func (p *part) at() (next, until int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ix.Next(), p.until
}

// loaded tells whether all was read that was there when reading began.
func (p *part) loaded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loadedLocked()
}

func (p *part) loadedLocked() bool { return !p.lost && !p.jumped && p.ix.Next() >= p.until }

// question is where a partition was before the starts were asked for.
type question struct {
	of     *index.Index // a start that was asked for before the log was begun anew says nothing in it
	asOf   int64        // the next offset
	gapped bool         // the end of the log is needed too
}

func (p *part) asked() question {
	p.mu.Lock()
	defer p.mu.Unlock()
	return question{p.ix, p.ix.Next(), p.gapped}
}

// suspect adds the topics that have entries and are not listed.
func (p *part) suspect(all, listed map[[16]byte]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.topics {
		if !listed[id] {
			all[id] = true
		}
	}
}

// forget takes a topic from those that have entries, and tells whether it was one.
func (p *part) forget(topic [16]byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	had := p.topics[topic]
	delete(p.topics, topic)
	return had
}

func (p *part) current() (entry.Generation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ix.Current()
}

// read is what apply found in records.
type read struct {
	decides    bool // a verdict may be another one now
	generation bool // a generation record was among them
	skipped    int64
}

// apply gives records to the index, in order. An error other than errLost is for
// good: the record cannot be read past.
func (p *part) apply(records []*kgo.Record) (got read, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.loadedLocked()
	for _, r := range records {
		next := p.ix.Next()
		if p.lost || r.Offset < next {
			p.lost = true
			return got, errLost
		}
		if r.Offset > next {
			got.skipped += r.Offset - next
			p.gapped, p.jumped = true, true
			if err := p.ix.Gap(r.Offset); err != nil {
				return got, err
			}
		}
		if err := p.one(r, &got); err != nil {
			return got, fmt.Errorf("at offset %d of partition %d: %w", r.Offset, p.n, err)
		}
	}
	newer := p.fresh.reached(p.ix.Next())
	got.decides = got.decides || newer || got.skipped > 0 || got.generation || !before && p.loadedLocked()
	return got, nil
}

func (p *part) one(r *kgo.Record, got *read) error {
	what, err := Tell(p.ix, r)
	got.decides = got.decides || what.Marker
	got.generation = got.generation || what.Generation
	if what.Entry != nil {
		p.topics[what.Entry.TopicID] = true
	}
	return err
}

// Kind is what a record of a ledger says.
type Kind struct {
	Marker, Generation bool
	Entry              *entry.Entry // nil: it is none
}

// Tell gives a record of a ledger partition, which may be a control record, to the
// partition's index. An error is for good: the record cannot be read past.
func Tell(ix *index.Index, r *kgo.Record) (Kind, error) {
	who := index.Producer{ID: r.ProducerID, Epoch: r.ProducerEpoch}
	if r.Attrs.IsControl() {
		var key kmsg.ControlRecordKey
		if err := key.ReadFrom(r.Key); err != nil {
			return Kind{}, fmt.Errorf("control record: %w", err)
		}
		switch key.Type {
		case kmsg.ControlRecordKeyTypeAbort, kmsg.ControlRecordKeyTypeCommit:
			return Kind{Marker: true}, ix.Marker(r.Offset, who, key.Type == kmsg.ControlRecordKeyTypeCommit)
		}
		return Kind{}, ix.Other(r.Offset)
	}
	v, err := entry.Parse(r.Value)
	switch {
	case err != nil:
		return Kind{}, err
	case v.Generation != nil:
		return Kind{Generation: true}, ix.Generation(r.Offset, *v.Generation)
	case !r.Attrs.IsTransactional():
		return Kind{}, fmt.Errorf("%w: an entry of %q is in no transaction", entry.ErrCorrupt, v.Entry.TransactionalID)
	}
	return Kind{Entry: v.Entry}, ix.Entry(r.Offset, who, *v.Entry)
}
