package txnmanager

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/sharetxn/sharetxn"
)

// An EndTxn's answer proves what was decided, not that every partition was told.
// While a partition has no leader the coordinator of Kafka 4.3 and 4.4 drops its marker
// and completes the transaction all the same. What was written there stays
// undecided, and the next marker of the producer id decides it along with its own
// transaction: an abort hides what was committed, a commit shows what was aborted.
//
// So a transaction has landed only when the leader of each partition it wrote to
// says that nothing of it is open there any more. Until then nothing else is done
// with the transactional id, and where a marker was lost it is written again, by a
// transaction of its own that has the same end and writes nothing else.

// landing is the way of one transaction's end to the logs. It runs in the
// background, and alone has the transactional id: whoever wants to use that waits.
type landing struct {
	m      *TransactionManager
	of     identity
	commit bool
	heir   *past         // of what the transaction was, if not of this process; nil: it was
	landed func()        // told when it is over, if that is well; nil: nobody
	told   chan struct{} // closed when the outcome was told
	done   chan struct{} // closed when it is over, well or not

	// Of the goroutine.
	todo      map[place]doubt // where the end was not seen
	fresh     map[place]bool  // whose leader was asked for since the transaction ended
	ended     identity        // of the last EndTxn: the transaction's, or a repair's
	next      identity        // to go on with
	complete  bool            // the coordinator has written, or dropped, all markers of that end
	unsettled bool            // a repair has begun and is not ended
	repairs   int
	lost      place // where a marker was found to be missing

	// Guarded by m.mu.
	why     error // not over yet
	trouble bool  // and it takes long
	err     error // never will be
}

// doubt is a partition where nothing is open and nothing proves the marker.
type doubt struct {
	since time.Time
	times int
}

// soon is what a landing may take before whoever begins a transaction waits for it.
const soon = requestTimeout

// land begins the landing of a transaction that has ended; follow has the kgo
// client follow first. m.mu is held, and m.ident is known or to be asked for.
func (m *TransactionManager) land(t *Transaction, commit, follow bool) *landing {
	l := m.newLanding(t.ident, commit, maps.Keys(t.written.places()))
	if commit {
		l.landed = t.start.Landed
	}
	l.begin(follow)
	return l
}

// newLanding makes the landing of what ended in places.
func (m *TransactionManager) newLanding(of identity, commit bool, places iter.Seq[place]) *landing {
	l := &landing{
		m: m, of: of, commit: commit, ended: of, next: m.ident,
		todo: make(map[place]doubt), fresh: make(map[place]bool),
		told: make(chan struct{}), done: make(chan struct{}),
	}
	for p := range places {
		l.todo[p] = doubt{}
	}
	return l
}

// begin begins it; m.mu is held, and no other is under way.
func (l *landing) begin(follow bool) {
	m, of := l.m, l.of
	m.landing = l
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		defer close(l.done)
		ctx, free := m.leash.hold(context.Background())
		defer free()
		if follow {
			l.next, l.complete = m.followed(ctx, of, l.commit)
		}
		err := l.run(ctx)
		if err == nil {
			<-l.told
			if l.landed != nil {
				l.landed()
			}
		}
		m.mu.Lock()
		l.err = err
		m.mu.Unlock()
	}()
}

// run goes on until the end has landed. Its error says that it never will, or that
// ctx has ended.
func (l *landing) run(ctx context.Context) error {
	began := time.Now()
	var pause backoff
	for {
		err := l.step(ctx)
		switch {
		case err == nil && len(l.todo) == 0:
			if l.repairs > 0 {
				l.m.log.Warn("lost markers were written again", "transactional_id", l.m.id, "took", time.Since(began).Round(time.Millisecond))
			}
			return nil
		case sharetxn.IsFatal(err):
			return l.m.fence("EndTxn", err)
		case err == nil && l.repairs < 2:
			continue
		case err != nil:
			if l.note(err, time.Since(began) > soon) {
				l.m.log.Warn("the end of a transaction has not reached every partition yet; nothing else is begun, or acknowledged, before", "transactional_id", l.m.id,
					"committed", l.commit, "err", err)
			}
		}
		if pause.wait(ctx) != nil {
			return l.failure(ctx)
		}
	}
}

// step asks, or does one thing about what it knows.
func (l *landing) step(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if l.unsettled {
		return l.at(l.end(bounded))
	}
	open, err := l.ask(bounded)
	if len(open) == 0 {
		return err
	}
	l.lost = open[0]
	if !l.complete { // it may only be late
		return l.at(l.end(bounded))
	}
	return l.at(l.repair(bounded, open))
}

// at makes an error one about the partition that lacks its marker.
func (l *landing) at(err error) error {
	if err == nil {
		return nil
	}
	return &placeError{l.lost, err}
}

// note keeps why it is not over, and tells whether that takes long for the first
// time.
func (l *landing) note(err error, long bool) (news bool) {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.why = err
	news = long && !l.trouble
	l.trouble = l.trouble || long
	return news
}

// failure is what whoever waited no longer is told.
func (l *landing) failure(ctx context.Context) error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	return l.notLanded("Commit", ctx)
}

// notLanded says what is not over and where; m.mu is held.
func (l *landing) notLanded(op string, ctx context.Context) error {
	what := "aborted"
	if l.commit {
		what = "committed"
	}
	why := l.why
	if why == nil {
		why = errNotAsked
	}
	e := l.m.failure(op, sharetxn.ClassAbortable, fmt.Errorf("%w: producer id %d, epoch %d, %s: %w (%w)", sharetxn.ErrNotLanded, l.of.id, l.of.epoch, what, why, cause(ctx)))
	if at, ok := errors.AsType[*placeError](why); ok {
		e.Topic, e.Partition = at.topic, at.partition
	}
	return e
}

var errNotAsked = errors.New("the coordinator has not completed it yet")

// placeError is what stands in the way at one partition.
type placeError struct {
	place
	err error
}

func (e *placeError) Error() string { return e.String() + ": " + e.err.Error() }
func (e *placeError) Unwrap() error { return e.err }

// waitLanded waits until the kgo client has followed the last transaction's end,
// and that has landed. The error says what is in the way.
func (m *TransactionManager) waitLanded(ctx context.Context, op string) error {
	m.mu.Lock()
	l := m.landing
	m.mu.Unlock()
	if l == nil {
		return nil
	}
	select {
	case <-l.done:
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		return l.notLanded(op, ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return l.err
}

// waitTrouble is waitLanded where that takes long already.
func (m *TransactionManager) waitTrouble(ctx context.Context, op string) error {
	m.mu.Lock()
	trouble := m.landing != nil && m.landing.trouble
	m.mu.Unlock()
	if !trouble {
		return nil
	}
	return m.waitLanded(ctx, op)
}

// Land waits until the end of the last transaction has landed: until it stands in
// every partition that it wrote to, so that no other can undo it. OpenOutputs and
// Stage wait for it, too. The error wraps ErrNotLanded, with the partition that is
// in the way, and is of class abortable; or it says why it never will be, of class
// fatal. Safe for concurrent use.
func (m *TransactionManager) Land(ctx context.Context) error { return m.waitLanded(ctx, "Land") }
