package shareconsumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Acquire is how a broker counts the records that a fetch asks for
// (share.acquire.mode, KIP-1206).
type Acquire uint8

const (
	// BatchOptimized, the default: whole batches of the log, so that a fetch may
	// bring more than it asked for. Cheapest for brokers.
	BatchOptimized Acquire = iota
	// RecordLimit: never more than was asked for, also of a batch.
	RecordLimit
)

func (a Acquire) String() string {
	switch a {
	case BatchOptimized:
		return "batch_optimized"
	case RecordLimit:
		return "record_limit"
	}
	return fmt.Sprintf("Acquire(%d)", uint8(a))
}

// turnWait is the longest that a broker may hold a fetch while another has to
// wait for its turn.
const turnWait = 50 * time.Millisecond

// ration is what one session may ask for in RecordLimit mode.
type ration struct {
	records int
	scarce  bool // others got nothing: it must not take long
}

// rationed parts what is left of a total evenly among the sessions that want
// records, those that waited longest first; rank is the session's place among
// them.
func rationed(total, claimed, sessions, rank int) ration {
	left := max(0, total-claimed)
	r := ration{records: left / sessions, scarce: left < sessions}
	if rank < left%sessions {
		r.records++
	}
	return r
}

// ration tells how many records a session may ask for. In RecordLimit mode all
// that is fetched and not polled, or asked for, is MaxPollRecords together, so
// that a member acquires no record that its next Poll does not give out. c.mu is
// held.
func (c *Consumer) ration(s *session, now time.Time) ration {
	if c.cfg.acquire == BatchOptimized {
		return ration{records: s.supply().records()}
	}
	claimed := 0
	wanting := []*session{s}
	for _, o := range c.sessions {
		claimed += o.unpolled + o.granted.records
		if o != s && !o.fetches && len(o.want) > 0 && o.sure() && !now.Before(o.pause) {
			wanting = append(wanting, o)
		}
	}
	slices.SortFunc(wanting, func(a, b *session) int { return cmp.Or(a.turn.Compare(b.turn), cmp.Compare(a.node, b.node)) })
	return rationed(c.cfg.maxPollRecords, claimed, len(wanting), slices.Index(wanting, s))
}

// learn asks what the broker can do, before a session is opened. One that is
// too old for RecordLimit would be sent fetches without it; one that is too old
// for renewals (KIP-1222) would take them for something else. Errors: fatal, or
// what kept from asking.
func (s *session) learn(ctx context.Context) error {
	c := s.c
	offered, err := offers(ctx, c.client.Broker(int(s.node)).Request)
	if err != nil {
		return err
	}
	c.mu.Lock()
	s.noRenew = offered[keyAcknowledge] < renewals
	c.mu.Unlock()
	if lacks := lacking(c.needs(), offered); lacks != "" && c.cfg.acquire == RecordLimit {
		c.setFatal(c.unsupported(lacks))
		return errUnlimited
	}
	return nil
}

var errUnlimited = errors.New("the broker does not know RecordLimit")
