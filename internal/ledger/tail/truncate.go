package tail

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// worthwhile is how many offsets of a partition an unasked truncation must find
// deletable: each writes a record, and many processes do it.
const worthwhile = 1000

// truncateNowAndThen truncates until ctx ends.
func (l *Ledger) truncateNowAndThen(ctx context.Context) {
	for {
		// Spread, so that the processes of a group do not all do it at once: who
		// comes later finds nothing worthwhile.
		lapse.For(ctx, l.opts.Truncations/2+rand.N(l.opts.Truncations))
		if ctx.Err() != nil || l.Err() != nil {
			return
		}
		bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
		_, err := l.truncate(bounded, worthwhile)
		cancel()
		if err != nil && ctx.Err() == nil {
			l.told.trouble(l, err)
		}
	}
}

// Truncate deletes from the log what decides nothing any more: everything before
// the first entry that is undecided, or committed and not wholly below the start
// of its share partition. It gives how many offsets it deleted, also with an
// error, which joins those of single partitions.
func (l *Ledger) Truncate(ctx context.Context) (deleted int64, err error) {
	deleted, err = l.truncate(ctx, 2) // for one the generation's copy would be written, without end
	if err != nil {
		err = l.wrap(err)
	}
	return deleted, err
}

func (l *Ledger) truncate(ctx context.Context, least int64) (deleted int64, err error) {
	if err := l.Err(); err != nil {
		return 0, err
	}
	// As fresh as can be: what went below the starts since can go too.
	if err := l.readStarts(ctx); err != nil {
		return 0, err
	}
	parts := *l.parts.Load()
	logs, err := l.bounds(ctx, upTo(0, len(parts))...)
	errs := []error{err}
	for _, p := range parts {
		log, known := logs[p.n]
		if !known {
			continue
		}
		n, err := l.truncatePart(ctx, p, log.start, least)
		if err != nil {
			errs = append(errs, fmt.Errorf("truncating partition %d of topic %s: %w", p.n, l.topic, err))
		}
		deleted += n
	}
	return deleted, errors.Join(errs...)
}

// truncatePart writes the generation record anew, behind all that goes, reads
// past it, and only then deletes: at no moment is the log without it.
func (l *Ledger) truncatePart(ctx context.Context, p *part, start, least int64) (deleted int64, err error) {
	g, deletable := p.deletable()
	if deletable-start < least {
		return 0, nil
	}
	began := time.Now()
	value, err := g.Append(nil)
	if err != nil {
		return 0, err
	}
	copied, err := l.client.ProduceSync(ctx, &kgo.Record{Topic: l.topic, Partition: p.n, Value: value}).First()
	if err != nil {
		return 0, topic.Failed("Produce", l.group, "Write on topic "+l.topic, fmt.Errorf("writing the generation record anew: %w", err))
	}
	if err := l.reach(ctx, p, copied.Offset); err != nil {
		return 0, err
	}
	to := p.keep(g)
	if to <= start {
		return 0, nil
	}
	l.co.Step("truncating")
	resp, err := kadm.NewClient(l.client).DeleteRecords(ctx, kadm.Offsets{l.topic: {p.n: {Topic: l.topic, Partition: p.n, At: to}}})
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return 0, topic.Failed("DeleteRecords", l.group, "Delete on topic "+l.topic, err)
	}
	l.tell(sharetxn.LedgerEvent{Event: sharetxn.LedgerTruncated, Partition: p.n, Records: to - start, Took: time.Since(began)})
	return to - start, nil
}

// keep is the first offset that must stay in the log, 0 if another generation than
// g is in force: to a move that has begun, entries of before it still say what is
// done.
func (p *part) keep(g entry.Generation) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now, err := p.ix.Current(); err != nil || now != g || !p.loadedLocked() {
		return 0
	}
	return p.ix.Keep()
}

// deletable is what keep can become by a new record of the generation; 0 where
// there is none that members work in.
func (p *part) deletable() (entry.Generation, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, err := p.ix.Current()
	if err != nil || g.Phase != entry.Active || !p.loadedLocked() {
		return g, 0
	}
	return g, p.ix.Deletable()
}
