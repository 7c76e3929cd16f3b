package share

import "slices"

// sessionKey names a share session: one per member and broker (KIP-932).
type sessionKey struct {
	group, member string
	node          int32
}

// session belongs to the connection that opened it.
type session struct {
	conn  uint64
	epoch int32 // that the next request must carry
	parts []topicPart
	known map[topicPart]bool // that had a topic when they were listed
	turn  int                // rotates who is served first
}

type topicPart struct {
	topic [16]byte
	part  int32
}

func (s *session) add(tp topicPart, known bool) {
	if !slices.Contains(s.parts, tp) {
		s.parts = append(s.parts, tp)
	}
	s.known[tp] = s.known[tp] || known
}

func (s *session) forget(tp topicPart) {
	delete(s.known, tp)
	s.parts = slices.DeleteFunc(s.parts, func(x topicPart) bool { return x == tp })
}

const finalEpoch = -1

// nextEpoch is the epoch after e; it wraps to 1, since 0 opens a session.
func nextEpoch(e int32) int32 {
	if e == 1<<31-1 {
		return 1
	}
	return e + 1
}

// enter checks the epoch of a request on an existing session and moves it on
// before anything else is done; e.mu is held.
func (e *Engine) enter(k sessionKey, epoch int32) (*session, int16) {
	s := e.sessions[k]
	switch {
	case s == nil:
		return nil, codeShareSessionNotFound
	case epoch == finalEpoch:
		return s, codeNone
	case epoch != s.epoch:
		return nil, codeInvalidShareSessionEpoch
	}
	s.epoch = nextEpoch(s.epoch)
	return s, codeNone
}

// open makes or replaces a session. What the member had acquired stays
// acquired; e.mu is held.
func (e *Engine) open(k sessionKey, conn uint64) (*session, int16) {
	if e.sessions[k] == nil {
		n := 0
		for x := range e.sessions {
			if x.node == k.node {
				n++
			}
		}
		if n >= e.cfg.MaxSessions {
			return nil, codeShareSessionLimitReached
		}
	}
	s := &session{conn: conn, epoch: 1, known: make(map[topicPart]bool)}
	e.sessions[k] = s
	return s, codeNone
}

// endSession closes a session and gives back what its member has acquired of the
// session's partitions: what was forgotten stays locked (measured).
func (e *Engine) endSession(k sessionKey) {
	leads := e.leads(k.node)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closeSession(k, leads)
}

// closeSession is endSession's part under e.mu; leads tells which partitions
// the broker leads.
func (e *Engine) closeSession(k sessionKey, leads func(topicPart) bool) {
	s := e.sessions[k]
	if s == nil {
		return
	}
	delete(e.sessions, k)
	changed := false
	for _, tp := range s.parts {
		if p := e.partition(partKey{k.group, tp.topic, tp.part}); p != nil && leads(tp) {
			changed = p.release(k.member) || changed
		}
	}
	if changed {
		e.broadcast()
	}
}

// leads asks Log, without e.mu, which partitions a node leads.
func (e *Engine) leads(node int32) func(topicPart) bool {
	e.mu.Lock()
	all := make(map[topicPart]bool)
	for pk := range e.parts {
		all[topicPart{pk.topic, pk.part}] = false
	}
	e.mu.Unlock()
	for tp := range all {
		if t, ok := e.cfg.Log.Topic(tp.topic); ok {
			leader, _ := e.cfg.Log.Leader(t.Name, tp.part)
			all[tp] = leader == node
		}
	}
	return func(tp topicPart) bool { return all[tp] }
}

// ConnClosed says that a client connection is gone: the sessions opened on it
// end, and what their members had acquired of their partitions is given back.
func (e *Engine) ConnClosed(node int32, id uint64) {
	var mine []sessionKey
	e.mu.Lock()
	for k, s := range e.sessions {
		if s.conn == id && k.node == node {
			mine = append(mine, k)
		}
	}
	e.mu.Unlock()
	if len(mine) == 0 {
		return
	}
	leads := e.leads(node)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, k := range mine {
		if s := e.sessions[k]; s != nil && s.conn == id {
			e.closeSession(k, leads)
			e.unload(k, leads)
		}
	}
	e.broadcast()
}

// unload makes a broker forget what it has in memory only of a group whose last
// session on it ended with its connection (measured; a final epoch does not do
// that): what is acquired still, of partitions that are in no session, can be
// had again, with the delivery count that was written. e.mu is held.
func (e *Engine) unload(k sessionKey, leads func(topicPart) bool) {
	for other := range e.sessions {
		if other.group == k.group && other.node == k.node {
			return
		}
	}
	for pk := range e.parts {
		if pk.group == k.group && leads(topicPart{pk.topic, pk.part}) {
			e.partition(pk).forgetAcquired()
		}
	}
}

// placed is what is known of a partition when a request for it is answered.
type placed struct {
	topicPart
	name          string
	code          int16 // why it cannot be served
	leader, epoch int32 // with NOT_LEADER_OR_FOLLOWER
}

// place finds the topic and leader of a partition; it asks Log, so e.mu is not
// held.
func (e *Engine) place(node int32, tp topicPart) placed {
	p := placed{topicPart: tp, leader: -1, epoch: -1}
	t, ok := e.cfg.Log.Topic(tp.topic)
	if !ok {
		p.code = codeUnknownTopicID
		return p
	}
	p.name = t.Name
	if tp.part < 0 || tp.part >= t.Partitions {
		p.code = codeUnknownTopicOrPartition
		return p
	}
	leader, epoch := e.cfg.Log.Leader(t.Name, tp.part)
	if leader != node {
		p.code, p.leader, p.epoch = codeNotLeaderOrFollower, leader, epoch
	}
	return p
}

// placeIn is place for a fetch of a session. One that knew the topic is told of
// its end in other words than one that never did (measured).
func (e *Engine) placeIn(s *session, node int32, tp topicPart) placed {
	p := e.place(node, tp)
	if p.code == codeUnknownTopicID {
		e.mu.Lock()
		defer e.mu.Unlock()
		if s.known[tp] {
			p.code = codeUnknownTopicOrPartition
		}
	}
	return p
}

// endpoint is where a node listens.
type endpoint struct {
	id   int32
	host string
	port int32
	rack *string
}

// endpoints names each of the leaders once, for the answer's hints; negative
// ones mean that there is nothing to hint at.
func (e *Engine) endpoints(leaders []int32) []endpoint {
	var out []endpoint
	for _, id := range leaders {
		if id < 0 || slices.ContainsFunc(out, func(x endpoint) bool { return x.id == id }) {
			continue
		}
		if host, port, rack, ok := e.cfg.Log.Node(id); ok {
			out = append(out, endpoint{id, host, port, rack})
		}
	}
	return out
}
