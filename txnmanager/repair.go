package txnmanager

import (
	"context"
	"errors"
	"fmt"

	"github.com/sharetxn/sharetxn"
)

var (
	errMarkerLost = errors.New("the brokers lost the marker by which the transaction ends there; it is written again")
	errSpent      = errors.New("its producer id has no epoch left, so nobody can write it again: what the transaction wrote there stays undecided, and readers of committed data stop before it; " +
		"have an administrator write the marker (WriteTxnMarkers)")
)

// end sends EndTxn v5 for the last end once more, which a coordinator answers with
// success only when it has completed that, or ends a repair. Nobody may have run
// InitProducerId since.
func (l *landing) end(ctx context.Context) error {
	c := l.coordinator()
	code, next, _, err := c.endOnce(ctx, l.ended, l.commit)
	r := rpcAbort
	if l.commit {
		r = rpcCommit
	}
	if err := l.verdict(c, r, code, err); err != nil {
		return err
	}
	l.complete, l.unsettled = true, false
	l.goOnAs(next)
	return nil
}

// repair writes the end again where it was lost: those partitions are made part of
// a new transaction of ours, which ends as the lost one did. Its markers end
// whatever our producer id has open in their logs.
//
// What the ledger's readers tell a repaired abort by is an odd distance between the
// transaction's epoch and the marker's, so that a repair of a commit that its
// coordinator had to abort is no repaired abort to them.
func (l *landing) repair(ctx context.Context, open []place) error {
	m, c := l.m, l.coordinator()
	if l.repairs == 0 {
		m.log.Warn("brokers lost markers of a transaction; they are written again", "transactional_id", m.id, "producer_id", l.of.id, "producer_epoch", l.of.epoch, "committed", l.commit, "partitions", fmt.Sprint(open))
		l.note(&placeError{open[0], errMarkerLost}, true)
	}
	if l.next.id == l.of.id && !fits(l.of, l.next, l.commit) {
		got, err := c.initOnce(ctx, l.next, m.cfg.timeout)
		if a, ok := errors.AsType[answered](err); ok {
			err = l.verdict(c, a.rpc, a.code, nil)
		} else if err != nil {
			err = l.verdict(c, rpcInit, 0, err)
		}
		if err != nil {
			return err
		}
		l.goOnAs(got)
	}
	if l.next.id != l.of.id {
		return m.failure("EndTxn", sharetxn.ClassFatal, fmt.Errorf("%w: producer id %d, epoch %d: %w", sharetxn.ErrNotLanded, l.of.id, l.of.epoch, errSpent))
	}
	code, err := c.addOnce(ctx, l.next, open)
	if err := l.verdict(c, rpcAdd, code, err); err != nil {
		return err
	}
	l.ended, l.complete, l.unsettled = l.next, false, true
	l.repairs++
	return l.end(ctx)
}

// fits tells whether the marker of a transaction at the identity at may repair that
// of one at of.
func fits(of, at identity, commit bool) bool {
	ahead := int32(at.epoch) + 1 - int32(of.epoch)
	return ahead > 1 && (ahead%2 == 0) == commit
}

// verdict makes an error of an answer that is not success: fatal where another
// producer has the id, or what we know of ours is wrong, else to be tried again.
func (l *landing) verdict(c *coordinator, r rpc, code int16, err error) error {
	if err != nil {
		c.forget()
		return l.m.failure(r.String(), sharetxn.ClassAbortable, err)
	}
	v := classify(r, code)
	switch v {
	case vOK:
		return nil
	case vElsewhere, vUnclear:
		c.forget()
	case vNotCommitted, vCommitted:
		return l.m.failure(r.String(), sharetxn.ClassFatal, fmt.Errorf("%w: the coordinator denies an end that it had confirmed: %w", sharetxn.ErrFenced, codeError(code)))
	case vAgain, vAbort, vMoved, vFenced, vRefused, vUnsupported, verdicts:
	}
	e := l.m.refused(r, code)
	if v != vFenced {
		e.Class = sharetxn.ClassAbortable
	}
	return e
}

// goOnAs makes the identity the one to go on with. The kgo client is behind.
func (l *landing) goOnAs(i identity) {
	l.next = i
	m := l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fatal == nil && m.ident != i {
		m.ident, m.current = i, false
	}
}

// coordinator gives the one that landings speak with: another has the turn.
func (l *landing) coordinator() *coordinator {
	c := &l.m.lander
	c.client = l.m.clientNow()
	return c
}
