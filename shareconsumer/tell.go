package shareconsumer

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// teller brings news to hooks and callbacks in the order in which it came, one
// at a time and never under a lock: whoever holds c.mu adds, and tells when it
// is released.
type teller struct {
	mu      sync.Mutex
	news    []func()
	telling bool // somebody is at it already
}

// add is allowed with c.mu held.
func (t *teller) add(news func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.news = append(t.news, news)
}

// tell is called without locks.
func (t *teller) tell() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.telling {
		return // whoever is at it tells this too
	}
	t.telling = true
	for len(t.news) > 0 {
		news := t.news
		t.news = nil
		t.mu.Unlock()
		for _, fn := range news {
			fn()
		}
		t.mu.Lock()
	}
	t.telling = false
}

// hooks are the user's hooks by what they see.
type hooks struct {
	member      []sharetxn.HookMember
	session     []sharetxn.HookSession
	fetch       []sharetxn.HookFetch
	acknowledge []sharetxn.HookAcknowledge
	renew       []sharetxn.HookRenew
	lost        []sharetxn.HookLost
}

func newHooks(all []any) hooks {
	return hooks{
		member: hooksOf[sharetxn.HookMember](all), session: hooksOf[sharetxn.HookSession](all), fetch: hooksOf[sharetxn.HookFetch](all),
		acknowledge: hooksOf[sharetxn.HookAcknowledge](all), renew: hooksOf[sharetxn.HookRenew](all), lost: hooksOf[sharetxn.HookLost](all),
	}
}

func hooksOf[H any](all []any) (out []H) {
	for _, h := range all {
		if h, ok := h.(H); ok {
			out = append(out, h)
		}
	}
	return out
}

// tellMember, tellSession and tellLost add news; c.mu may be held.
func (c *Consumer) tellMember(e sharetxn.Member) {
	e.Group, e.MemberID = c.group, c.id
	for _, h := range c.hooks.member {
		c.news.add(func() { h.OnMember(e) })
	}
}

func (c *Consumer) tellSession(node int32, what sharetxn.SessionEvent, why error) {
	for _, h := range c.hooks.session {
		c.news.add(func() {
			h.OnSession(sharetxn.Session{Group: c.group, MemberID: c.id, Broker: node, Event: what, Err: why})
		})
	}
}

func (c *Consumer) tellLost(e sharetxn.Lost) {
	if e.Records == 0 {
		return
	}
	e.Group, e.MemberID = c.group, c.id
	for _, h := range c.hooks.lost {
		c.news.add(func() { h.OnLost(e) })
	}
}

// tellFetch tells of a fetch that was answered, or was not; c.mu is not held.
func (s *session) tellFetch(resp *kmsg.ShareFetchResponse, sent time.Time, err error) {
	c := s.c
	if len(c.hooks.fetch) == 0 {
		return
	}
	e := sharetxn.Fetch{Group: c.group, MemberID: c.id, Broker: s.node, Took: time.Since(sent), Err: err}
	errs := []error{err}
	if resp != nil {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				e.Ranges += len(p.AcquiredRecords)
				e.Bytes += len(p.Records)
				for _, a := range sanitise(p.AcquiredRecords) {
					e.Records += int(min(a.last-a.first, math.MaxInt32-1) + 1)
				}
				if p.ErrorCode != 0 {
					pe := brokerError("ShareFetch", c.group, sharetxn.ClassAbortable, p.ErrorCode)
					pe.Topic, pe.Partition = c.topicName(t.TopicID), p.Partition
					errs = append(errs, pe)
				}
			}
		}
	}
	e.Err = errors.Join(errs...)
	for _, h := range c.hooks.fetch {
		h.OnFetch(e)
	}
}

// ackRequest is a request with acknowledgements as its hooks are told of it.
type ackRequest struct {
	parts   []part
	renew   bool
	riding  bool
	attempt int // from 1
	sent    time.Time
}

// tellAcks tells what a request's partitions were answered; err is of the
// request as a whole. c.mu is not held.
func (s *session) tellAcks(q ackRequest, codes map[partKey]int16, err error) {
	c := s.c
	if len(q.parts) == 0 || len(c.hooks.acknowledge)+len(c.hooks.renew) == 0 {
		return
	}
	e := sharetxn.Acknowledge{Group: c.group, MemberID: c.id, Broker: s.node, Riding: q.riding, Attempt: q.attempt, Took: time.Since(q.sent), Err: err}
	for _, pt := range q.parts {
		tp := pt.tp
		p := sharetxn.Acknowledged{Topic: tp.Topic, Partition: tp.Partition, Ranges: len(batchesOf(pt)), Offsets: int(pt.offsets()), Err: err}
		code := codeFor(codes, keyOf(tp))
		if err == nil && code != 0 {
			pe := ackError(opOf(q.renew), c.group, code)
			pe.Topic, pe.Partition = tp.Topic, tp.Partition
			p.Err = pe
		}
		e.Partitions = append(e.Partitions, p)
	}
	slices.SortFunc(e.Partitions, func(a, b sharetxn.Acknowledged) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	if q.renew {
		for _, h := range c.hooks.renew {
			h.OnRenew(e)
		}
		return
	}
	for _, h := range c.hooks.acknowledge {
		h.OnAcknowledge(e)
	}
}

func (c *Consumer) topicName(id [16]byte) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.topics[id]
}
