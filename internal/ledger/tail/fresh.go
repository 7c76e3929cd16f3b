package tail

import (
	"context"
	"time"
)

// freshness is how new a partition is known to be: of what time all that its log
// held then was read.
type freshness struct {
	asOf   time.Time
	asked  time.Time // when the end was asked for that is not reached yet
	end    int64
	wanted time.Time // zero: nobody wants it to be newer than asked
}

// knows tells whether all was read that was there at a time.
func (f *freshness) knows(since time.Time) bool { return !since.After(f.asOf) }

// want asks for all that was there at a time, and tells whether that is news.
func (f *freshness) want(since time.Time) bool {
	if !since.After(f.asked) || !since.After(f.wanted) {
		return false
	}
	f.wanted = since
	return true
}

// told takes in where the log ended, by an answer to a question of that time.
func (f *freshness) told(asked time.Time, end, next int64) {
	f.asked, f.end = asked, end
	if !f.wanted.After(asked) {
		f.wanted = time.Time{}
	}
	f.reached(next)
}

// reached takes in how far was read, and tells whether it is newer for that.
func (f *freshness) reached(next int64) bool {
	if !f.asked.After(f.asOf) || next < f.end {
		return false
	}
	f.asOf = f.asked
	return true
}

// readEnds asks where those partitions end of which somebody wants to know whether
// what is read is still so.
func (l *Ledger) readEnds(ctx context.Context) error {
	now := time.Now()
	var wanted []int32
	for _, p := range *l.parts.Load() {
		if p.stale() {
			wanted = append(wanted, p.n)
		}
	}
	short, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	logs, err := l.bounds(short, wanted...)
	for n, log := range logs {
		l.part(n).ends(now, log.end)
	}
	if len(logs) > 0 {
		l.changed.fire()
	}
	return err
}

func (p *part) stale() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.fresh.wanted.IsZero()
}

func (p *part) ends(asked time.Time, end int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh.told(asked, end, p.ix.Next())
}
