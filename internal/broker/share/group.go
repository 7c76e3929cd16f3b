package share

import (
	"cmp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// group is the coordinator's view of one share group.
type group struct {
	name    string
	config  groupConfig
	epoch   int32 // rises with every change of members, subscriptions or topics
	target  int32 // epoch the present assignment was made for
	members map[string]*member
	joined  int64 // counts joins, to order members

	topics      map[string]Topic // what the last assignment saw
	assignedAt  time.Time
	assignTimer *time.Timer
}

type member struct {
	id                string
	order             int64
	epoch, prev       int32
	rack              *string
	clientID, host    string
	topics            []string
	target, delivered map[[16]byte][]int32 // assignment made, and as the member was told
	timer             *time.Timer          // session timeout
}

// checkMember is KIP-932's limit on member ids.
func checkMember(id string) bool { return id != "" && utf8.RuneCountInString(id) <= 36 }

func (e *Engine) heartbeat(c Conn, req *kmsg.ShareGroupHeartbeatRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
	fail := func(code int16) kmsg.Response { resp.ErrorCode = code; return resp }
	switch {
	case req.GroupID == "" || !checkMember(req.MemberID) || req.MemberEpoch < -1 || (req.RackID != nil && *req.RackID == ""):
		return fail(codeInvalidRequest)
	case req.MemberEpoch == 0 && len(req.SubscribedTopicNames) == 0:
		return fail(codeInvalidRequest)
	case e.cfg.Log.GroupCoordinator(req.GroupID) != c.Node:
		return fail(codeNotCoordinator)
	}
	topics := e.lookup(req.GroupID, req.SubscribedTopicNames)

	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fail(codeNotCoordinator)
	}
	g := e.group(req.GroupID)
	m := g.members[req.MemberID]
	switch {
	case req.MemberEpoch == -1:
		if m == nil {
			return fail(codeUnknownMemberID)
		}
		e.remove(g, m)
		resp.MemberID, resp.MemberEpoch = &m.id, -1
		return resp
	case m == nil && req.MemberEpoch > 0:
		return fail(codeUnknownMemberID)
	case m != nil && req.MemberEpoch > 0 && req.MemberEpoch != m.epoch && req.MemberEpoch != m.prev:
		return fail(codeFencedMemberEpoch)
	}
	if m == nil {
		g.joined++
		m = &member{id: req.MemberID, order: g.joined}
		m.timer = time.AfterFunc(g.config.session, func() { e.sessionTimeout(g, m) })
		g.members[m.id] = m
		g.epoch++
	}
	m.timer.Reset(g.config.session)
	m.clientID, m.host = c.ClientID, c.Host
	if req.RackID != nil {
		m.rack = req.RackID
	}
	if req.SubscribedTopicNames != nil {
		names := slices.Sorted(slices.Values(req.SubscribedTopicNames))
		if !slices.Equal(names, m.topics) {
			m.topics = names
			g.epoch++
		}
	}
	if g.sawOther(topics) {
		g.epoch++
	}
	g.topics = topics
	e.assign(g)

	full := req.MemberEpoch == 0
	if m.epoch != g.target {
		m.prev, m.epoch = m.epoch, g.target
	}
	resp.MemberID, resp.MemberEpoch = &m.id, m.epoch
	resp.HeartbeatIntervalMillis = int32(g.config.heartbeat.Milliseconds())
	if full || !sameAssignment(m.target, m.delivered) {
		m.delivered = m.target
		resp.Assignment = wireAssignment(m.target)
	}
	return resp
}

// lookup gives the topics that the group's members subscribe to, as they are
// now; it asks Log, so e.mu is not held.
func (e *Engine) lookup(name string, extra []string) map[string]Topic {
	names := slices.Clone(extra)
	e.mu.Lock()
	if g := e.groups[name]; g != nil {
		for _, m := range g.members {
			names = append(names, m.topics...)
		}
	}
	e.mu.Unlock()
	topics := make(map[string]Topic)
	for _, n := range names {
		if t, ok := e.cfg.Log.TopicByName(n); ok {
			topics[n] = t
		}
	}
	return topics
}

func (g *group) sawOther(topics map[string]Topic) bool {
	if len(topics) != len(g.topics) {
		return true
	}
	for n, t := range topics {
		if g.topics[n] != t {
			return true
		}
	}
	return false
}

func (e *Engine) sessionTimeout(g *group, m *member) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed && g.members[m.id] == m {
		e.remove(g, m)
	}
}

// remove takes a member out: its acquired records are given back, what it
// staged stays with the transaction; e.mu is held.
func (e *Engine) remove(g *group, m *member) {
	m.timer.Stop()
	delete(g.members, m.id)
	g.epoch++
	for k := range e.sessions {
		if k.group == g.name && k.member == m.id {
			delete(e.sessions, k)
		}
	}
	for k, p := range e.parts {
		if k.group == g.name {
			e.partition(k)
			p.release(m.id)
		}
	}
	e.broadcast()
	e.assign(g)
}

// assign makes the target assignment for the group's present epoch, at once or,
// as Kafka 4.3 does, an interval after the one before; e.mu is held.
func (e *Engine) assign(g *group) {
	if g.target == g.epoch || g.assignTimer != nil {
		return
	}
	if wait := e.cfg.AssignmentInterval; wait > 0 {
		if !g.assignedAt.IsZero() {
			wait -= time.Since(g.assignedAt)
		}
		if wait > 0 {
			g.assignTimer = time.AfterFunc(wait, func() {
				e.mu.Lock()
				defer e.mu.Unlock()
				g.assignTimer = nil
				if !e.closed {
					g.assignNow()
				}
			})
			if g.target == 0 {
				g.target = 1 // members have an epoch before they have partitions
			}
			return
		}
	}
	g.assignNow()
}

func (g *group) assignNow() {
	members := make([]*member, 0, len(g.members))
	for _, m := range g.members {
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b *member) int { return cmp.Compare(a.order, b.order) })
	distribute(members, g.topics)
	g.target, g.assignedAt = g.epoch, time.Now()
}

// distribute gives every partition of a subscribed topic to a member, and every
// member a partition: with more members than partitions they share.
func distribute(members []*member, topics map[string]Topic) {
	type slot struct {
		topic Topic
		part  int32
	}
	var slots []slot
	names := make([]string, 0, len(topics))
	for n := range topics {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		for p := range topics[n].Partitions {
			slots = append(slots, slot{topics[n], p})
		}
	}
	for _, m := range members {
		m.target = make(map[[16]byte][]int32)
	}
	give := func(m *member, s slot) { m.target[s.topic.ID] = append(m.target[s.topic.ID], s.part) }
	taken := 0
	for _, s := range slots {
		var takers []*member
		for _, m := range members {
			if slices.Contains(m.topics, s.topic.Name) {
				takers = append(takers, m)
			}
		}
		if len(takers) > 0 {
			give(takers[taken%len(takers)], s)
			taken++
		}
	}
	for i, m := range members {
		if len(m.target) > 0 {
			continue
		}
		var mine []slot
		for _, s := range slots {
			if slices.Contains(m.topics, s.topic.Name) {
				mine = append(mine, s)
			}
		}
		if len(mine) > 0 {
			give(m, mine[i%len(mine)])
		}
	}
}

func sameAssignment(a, b map[[16]byte][]int32) bool {
	if len(a) != len(b) {
		return false
	}
	for id, ps := range a {
		if !slices.Equal(ps, b[id]) {
			return false
		}
	}
	return true
}

func wireAssignment(a map[[16]byte][]int32) *kmsg.ShareGroupHeartbeatResponseAssignment {
	out := kmsg.NewShareGroupHeartbeatResponseAssignment()
	for id, ps := range a {
		tp := kmsg.NewShareGroupHeartbeatResponseAssignmentTopicPartition()
		tp.TopicID, tp.Partitions = id, ps
		out.TopicPartitions = append(out.TopicPartitions, tp)
	}
	return &out
}

// describe answers ShareGroupDescribe.
func (e *Engine) describe(c Conn, req *kmsg.ShareGroupDescribeRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ShareGroupDescribeResponse)
	for _, name := range req.GroupIDs {
		out := kmsg.NewShareGroupDescribeResponseGroup()
		out.GroupID, out.AuthorizedOperations = name, -2147483648
		if e.cfg.Log.GroupCoordinator(name) != c.Node {
			out.ErrorCode = codeNotCoordinator
			resp.Groups = append(resp.Groups, out)
			continue
		}
		e.mu.Lock()
		g := e.groups[name]
		if g == nil || g.epoch == 0 {
			out.ErrorCode = codeGroupIDNotFound
		} else {
			g.describe(&out)
		}
		e.mu.Unlock()
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

func (g *group) describe(out *kmsg.ShareGroupDescribeResponseGroup) {
	out.GroupState, out.Assignor = "Empty", "simple"
	if len(g.members) > 0 {
		out.GroupState = "Stable"
	}
	out.GroupEpoch, out.AssignmentEpoch = g.epoch, g.target
	names := make(map[[16]byte]string)
	for n, t := range g.topics {
		names[t.ID] = n
	}
	for _, m := range g.members {
		x := kmsg.NewShareGroupDescribeResponseGroupMember()
		x.MemberID, x.RackID, x.MemberEpoch, x.ClientID, x.ClientHost, x.SubscribedTopicNames = m.id, m.rack, m.epoch, m.clientID, m.host, m.topics
		for id, ps := range m.delivered {
			tp := kmsg.NewShareGroupDescribeResponseGroupMemberAssignmentTopicPartition()
			tp.TopicID, tp.Topic, tp.Partitions = id, names[id], ps
			x.Assignment.TopicPartitions = append(x.Assignment.TopicPartitions, tp)
		}
		out.Members = append(out.Members, x)
	}
}

// checkStager is the coordinator's check of who stages (KIP-1289): the member
// exists and its epoch is the present, the one before, or 0; e.mu is held.
func (e *Engine) checkStager(name, id string, epoch int32) int16 {
	g := e.groups[name]
	if g == nil || g.epoch == 0 {
		return codeGroupIDNotFound
	}
	m := g.members[id]
	if m == nil {
		return codeUnknownMemberID
	}
	if epoch != m.epoch && epoch != m.prev && epoch != 0 {
		return codeStaleMemberEpoch
	}
	return codeNone
}
