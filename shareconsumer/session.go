package shareconsumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// session is the share session with one broker: one request at a time (KIP-932),
// from one goroutine; another decodes what was answered.
type session struct {
	c     *Consumer
	node  int32
	wake  chan struct{}
	ended chan struct{} // closed when the goroutine ends

	parcels chan []*parcel // answers to unpack

	// Under c.mu.
	want    map[partKey]acks.TopicIDPartition // to fetch from
	queue   []*piece                          // acknowledgements to send, in order
	buffer  []*lease                          // unpacked and not yet polled
	restart bool                              // forget the session and open a new one
	ending  bool                              // on the way
	granted ration                            // what the fetch under way asks for
	turn    time.Time                         // when it last asked
	fetches bool                              // a fetch is under way
	noRenew bool                              // the broker does not renew locks
	doubt   int                               // which of the member's doubts keeps it from fetching
	back    []part                            // to be released by the session's end
	stray   time.Time                         // until then the broker may keep for us what no answer told of

	packed      int  // answers that are not decoded yet
	unpolled    int  // records of these and of the buffer
	out         int  // records that were polled and are not settled
	asked       int  // records, by the last fetch
	dry         int  // answers that acquired nothing, in a row
	redelivered bool // the last answer had records that were delivered before

	// The goroutine's own.
	epoch    int32               // of the next request; 0 opens
	opened   bool                // the broker may have a session of ours
	inside   map[partKey]entrant // what the broker's session holds
	sieve    sieve
	failures int
	pause    time.Time // no fetch before
}

// entrant is a partition in a broker's session.
type entrant struct {
	tp    acks.TopicIDPartition
	maybe bool // or not in it: the request that changed that has failed
}

// in tells whether a partition is in the broker's session for certain.
func (s *session) in(k partKey) bool {
	e, in := s.inside[k]
	return in && !e.maybe
}

// newSession is called with c.mu held.
func newSession(c *Consumer, node int32) *session {
	return &session{
		c: c, node: node, doubt: c.doubts.denied, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		parcels: make(chan []*parcel, mostPacked+1), inside: make(map[partKey]entrant),
	}
}

func (s *session) signal() { signal(s.wake) }

// action is what a session does next.
type action uint8

const (
	rest action = iota
	sendRenew
	sendAcks
	fetchRecords
	shut
)

// view is what the choice of the next action rests on.
type view struct {
	closing  bool
	renewals bool // queued
	urgent   bool // queued acknowledgements that somebody waits for, or that cannot ride
	lazy     bool // queued acknowledgements that may ride on a fetch
	soon     bool // a fetch for them is near, or they have time until one comes
	demand   bool // a poll waits
	buffered bool // a fetch waits to be polled
	ahead    bool // more may be fetched than is waited for
	dry      bool // the last fetch brought nothing
	wanted   bool // there is a partition to fetch from, and the member is one
	room     bool // in memory, for what is fetched in advance
	paused   bool // a fetch failed a moment ago
}

// choose: locks first, since they run; then who waits; a fetch where a poll
// wants it and nothing waits to be polled, or where one is worth while in
// advance. Acknowledgements ride on a fetch that is expected to bring something,
// and wait a moment for one that is near; any other would be parked with them, so
// they leave before it.
func choose(v view) action {
	fetch := v.wanted && !v.paused && (v.demand && !v.buffered || v.ahead && v.room && !v.dry)
	switch {
	case v.closing:
		return shut
	case v.renewals:
		return sendRenew
	case v.urgent:
		return sendAcks
	case v.lazy && (v.dry || !fetch && !v.soon):
		return sendAcks
	case fetch:
		return fetchRecords
	}
	return rest
}

func (s *session) run(ctx context.Context) {
	c := s.c
	defer c.wg.Done()
	c.wg.Go(s.unpacking)
	defer close(s.parcels)
	defer close(s.ended)
	for {
		s.straighten(time.Now())
		s.startOver(ctx)
		c.news.tell()
		c.mu.Lock()
		if s.fetches {
			s.fetches, s.granted = false, ration{}
			if c.cfg.acquire == RecordLimit {
				c.wakeSessions() // it may be another's turn
			}
			c.announce() // to Drain
		}
		now := time.Now()
		act := choose(s.view(now))
		var o order
		if act == fetchRecords {
			s.fetches, s.granted, s.turn = true, c.ration(s, now), now
			o = s.order()
		}
		pause := s.restFor(now)
		c.mu.Unlock()
		switch act {
		case shut:
			s.close(ctx)
			return
		case sendRenew:
			if err := s.cannotRenew(); err != nil {
				s.failQueue(func(p *piece) bool { return p.job.renew }, err)
				break
			}
			s.acknowledge(ctx, s.takeQueue(func(p *piece) bool { return p.job.renew }), true)
		case sendAcks:
			s.acknowledge(ctx, s.takeQueue(func(p *piece) bool { return !p.job.renew }), false)
		case fetchRecords:
			s.fetch(ctx, o)
		case rest:
			var timer <-chan time.Time
			if pause > 0 {
				timer = time.After(pause)
			}
			select {
			case <-s.wake: // Close wakes too
			case <-timer:
			case <-ctx.Done():
				s.abandon(ctx.Err())
				return
			}
		}
		if ctx.Err() != nil {
			s.abandon(ctx.Err())
			return
		}
	}
}

// view is taken with c.mu held.
func (s *session) view(now time.Time) view {
	c := s.c
	supply := s.supply()
	quick := !c.drained && supply.quick()
	v := view{
		closing: c.closed, demand: c.polling > 0 && !c.drained, buffered: s.stocked(),
		// What a poll waits for it will take at once.
		ahead: quick && s.packed <= mostPacked && supply.scarce(s.unpolled-c.polling*c.cfg.maxPollRecords), dry: s.dry > 0,
		wanted: len(s.want) > 0 && s.sure() && c.ration(s, now).records > 0, room: c.room() > 0,
		paused: now.Before(s.pause),
	}
	want := s.fetchable()
	patient := true
	for _, p := range s.queue {
		switch {
		case p.job.renew:
			v.renewals = true
		case p.job.urgent, !s.rides(p, want):
			v.urgent = true
		default:
			if !v.lazy { // the first is the oldest
				v.soon = c.polls > c.polling || quick && v.buffered && now.Sub(p.job.at) < rideWait
			}
			v.lazy = true
			patient = patient && now.Before(p.job.patient)
		}
	}
	v.soon = v.soon || patient
	return v
}

// stocked tells whether a fetch waits to be polled; c.mu is held.
func (s *session) stocked() bool { return s.packed > 0 || len(s.buffer) > 0 }

// rideWait is how long acknowledgements wait for the fetch that they are to ride
// on, where records are polled quickly.
const rideWait = 10 * time.Millisecond

// restFor is after what time something may be due by itself, 0 for never; c.mu
// is held.
func (s *session) restFor(now time.Time) time.Duration {
	d := max(0, s.pause.Sub(now))
	for _, p := range s.queue { // not sent: it waits for a fetch
		until := p.job.at.Add(rideWait)
		if p.job.patient.After(until) {
			until = p.job.patient
		}
		if ride := max(time.Millisecond, until.Sub(now)); d == 0 || ride < d {
			d = ride
		}
	}
	return d
}

// rides tells whether a piece may go with the next fetch: a session cannot be
// opened with acknowledgements, and a partition listed only for them would join
// it. c.mu is held.
func (s *session) rides(p *piece, want map[partKey]acks.TopicIDPartition) bool {
	for _, pt := range p.parts {
		if _, ok := want[keyOf(pt.tp)]; !ok {
			return false
		}
	}
	return s.epoch > 0
}

func all(*piece) bool { return true }

// takeQueue takes pieces out that can be sent together.
func (s *session) takeQueue(which func(*piece) bool) (l load) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.queue = slices.DeleteFunc(s.queue, func(p *piece) bool { return which(p) && l.take(p) })
	return l
}

// forgetSession lets the next fetch open a new session. c.mu is held.
func (s *session) forgetSession() {
	s.epoch = 0
	s.back = s.outside(s.back)
	clear(s.inside)
}

// toBack gives where releases of a partition go that are left to the session's
// end; good until it is asked again. c.mu is held.
func (s *session) toBack(tp acks.TopicIDPartition) *part {
	i := slices.IndexFunc(s.back, func(pt part) bool { return pt.tp.Same(tp) })
	if i < 0 {
		i = len(s.back)
		s.back = append(s.back, part{tp: tp})
	}
	return &s.back[i]
}

// outside is what the end of the broker's session does not release by itself.
func (s *session) outside(ps []part) []part {
	return slices.DeleteFunc(ps, func(pt part) bool { return len(pt.runs) == 0 || s.in(keyOf(pt.tp)) })
}

// straighten has the session begun anew when a fetch has failed whose records the
// broker may have acquired for this member all the same, seen before Kafka 4.4:
// that releases them. It waits until nothing else is held that would go too.
func (s *session) straighten(now time.Time) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if now.Before(s.stray) && s.out == 0 && !s.stocked() && len(s.queue) == 0 {
		s.restart = true
	}
}

var errRestarted = errors.New("the share session was begun anew")

// startOver ends the session if it is to be begun anew.
func (s *session) startOver(ctx context.Context) {
	c := s.c
	c.mu.Lock()
	restart := s.restart
	s.restart, s.ending = false, restart
	if restart {
		s.stray = time.Time{}
		// Also what an answer brought after the member was fenced: ending the
		// session gives it to others.
		c.giveBack(errRestarted, func(l *lease) bool { return l.s == s })
		s.forgetSession()
	}
	c.mu.Unlock()
	if !restart {
		return
	}
	rctx, cancel := context.WithTimeout(ctx, requestSlack)
	defer cancel()
	if err := s.end(rctx); err != nil && ctx.Err() == nil {
		c.core.Logger().Warn("sharetxn: share session not closed", "group", c.group, "broker", s.node, "err", err)
	}
	c.mu.Lock()
	s.ending = false
	c.announce() // to whoever waits for it
	c.mu.Unlock()
}

// finalEpoch closes a session.
const finalEpoch = -1

// end closes the session that the broker may have, which releases what this
// member acquired there of the session's partitions, and releases what it is to
// give back of others: opening a new one in its place would leave that locked
// until its timers fire.
func (s *session) end(ctx context.Context) error {
	s.c.mu.Lock()
	back := s.outside(s.back)
	s.back = nil
	s.c.mu.Unlock()
	if !s.opened {
		return nil
	}
	code, err := s.sendFinal(ctx, back)
	if err == nil && len(back) > 0 && code != 0 && code != kerr.ShareSessionNotFound.Code {
		code, err = s.sendFinal(ctx, nil) // what is refused must not keep the session open
	}
	if err != nil {
		return err
	}
	if code != 0 && code != kerr.ShareSessionNotFound.Code {
		return brokerError("ShareAcknowledge", s.c.group, sharetxn.ClassAbortable, code)
	}
	s.opened = false
	s.c.tellSession(s.node, sharetxn.SessionClosed, nil)
	return nil
}

// sendFinal is the last ShareAcknowledge of a session; what it releases and is
// refused was not ours any more.
func (s *session) sendFinal(ctx context.Context, back []part) (code int16, err error) {
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &s.c.group, &s.c.id, finalEpoch
	req.Topics = ackTopics(back)
	q := ackRequest{parts: back, attempt: 1, sent: time.Now()}
	kresp, err := s.c.client.Broker(int(s.node)).Request(ctx, req)
	if err != nil {
		s.tellAcks(q, nil, &sharetxn.Error{Op: "ShareAcknowledge", Class: sharetxn.ClassUnknown, Group: s.c.group, Err: err})
		return 0, err
	}
	resp := kresp.(*kmsg.ShareAcknowledgeResponse)
	if code = resp.ErrorCode; code != 0 {
		s.tellAcks(q, nil, brokerError("ShareAcknowledge", s.c.group, sharetxn.ClassAbortable, code))
		return code, nil
	}
	s.tellAcks(q, codesOf(resp), nil)
	return 0, nil
}

// advance moves to the epoch after this one; it wraps to 1.
func (s *session) advance() {
	if s.epoch == 1<<31-1 {
		s.epoch = 1
		return
	}
	s.epoch++
}

// lost ends the session after a failure: with the broker's session went what
// this member had acquired there, or at least our claim to it.
func (s *session) lost(why error) {
	if s.epoch > 0 {
		s.c.tellSession(s.node, sharetxn.SessionLost, why)
	}
	s.c.mu.Lock()
	s.c.giveBack(fmt.Errorf("share session with broker %d ended: %w", s.node, why), func(l *lease) bool { return l.s == s })
	s.forgetSession()
	s.doubt = s.c.doubt() // the broker may have restarted, and have coordinated the group
	s.failures++
	s.pause = time.Now().Add(backoff(s.failures - 1))
	s.c.mu.Unlock()
	signal(s.c.refresh) // the broker may be gone, or lead nothing any more
}

// sessionGone tells the codes after which the session does not exist.
func sessionGone(code int16) bool {
	switch code {
	case kerr.ShareSessionNotFound.Code, kerr.InvalidShareSessionEpoch.Code, kerr.ShareSessionLimitReached.Code:
		return true
	}
	return false
}

// leaderGone tells the partition codes with which the locks died.
func leaderGone(code int16) bool {
	switch code {
	case kerr.NotLeaderForPartition.Code, kerr.FencedLeaderEpoch.Code, kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code:
		return true
	}
	return false
}

// leaderNamed tells the codes with which an answer may name the new leader; with
// any other, brokers leave 0 there, which is a node too.
func leaderNamed(code int16) bool {
	return code == kerr.NotLeaderForPartition.Code || code == kerr.FencedLeaderEpoch.Code
}

// moved drops a partition that this broker does not lead any more.
func (s *session) moved(k partKey, code int16, hint leader) {
	c := s.c
	c.mu.Lock()
	c.lose(fmt.Errorf("the partition's leader moved: %w", kerr.ErrorForCode(code)), func(l *lease) bool { return l.s == s && l.key() == k })
	if l := c.leaders[k]; leaderNamed(code) && hint.node >= 0 && hint.epoch > l.epoch {
		c.leaders[k] = hint
	} else if l.node == s.node {
		delete(c.leaders, k) // until metadata knows better
	}
	missing := c.route()
	c.mu.Unlock()
	c.routed(missing)
}

var errAbandoned = errors.New("the consumer is closing")

// abandon fails whatever waits in the queue.
func (s *session) abandon(err error) {
	s.failQueue(all, &sharetxn.Error{Op: "ShareAcknowledge", Class: sharetxn.ClassAbortable, Group: s.c.group, Err: fmt.Errorf("%w: %w", errAbandoned, err)})
}

// failQueue fails pieces unsent.
func (s *session) failQueue(which func(*piece) bool, err error) {
	for l := s.takeQueue(which); len(l.pieces) > 0; l = s.takeQueue(which) {
		l.fail(err)
	}
}
