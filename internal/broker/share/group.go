package share

import (
	"slices"
	"strings"
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

	topics      map[string]Topic   // what the last assignment saw
	begun       map[[16]byte]int32 // partitions of topics that were ever subscribed to: they have offsets, if unset
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
	until             time.Time            // when the session times out
}

func (g *group) stopTimers() {
	for _, m := range g.members {
		m.timer.Stop()
	}
	if g.assignTimer != nil {
		g.assignTimer.Stop()
	}
}

// checkMember is KIP-932's limit on member ids.
func checkMember(id string) bool { return id != "" && utf8.RuneCountInString(id) <= 36 }

// blank tells whether nothing can be read in it; to Kafka that is as good as empty.
func blank(s string) bool { return strings.TrimSpace(s) == "" }

func (e *Engine) heartbeat(c Conn, req *kmsg.ShareGroupHeartbeatRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
	fail := func(code int16) kmsg.Response { resp.ErrorCode = code; return resp }
	switch {
	case blank(req.GroupID) || blank(req.MemberID) || !checkMember(req.MemberID) || req.MemberEpoch < -1 || (req.RackID != nil && blank(*req.RackID)):
		return fail(codeInvalidRequest)
	case req.MemberEpoch == 0 && len(req.SubscribedTopicNames) == 0:
		return fail(codeInvalidRequest)
	case e.cfg.Log.GroupCoordinator(req.GroupID) != c.Node:
		return fail(codeNotCoordinator)
	}
	taken := e.cfg.Log.GroupTaken(req.GroupID)
	topics := e.lookup(req.GroupID, req.SubscribedTopicNames)

	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fail(codeNotCoordinator)
	}
	g := e.group(req.GroupID)
	m := g.members[req.MemberID]
	switch {
	case g.epoch == 0 && (req.MemberEpoch != 0 || taken):
		return fail(codeGroupIDNotFound)
	case m == nil && req.MemberEpoch != 0:
		return fail(codeUnknownMemberID)
	case m == nil && len(g.members) >= e.cfg.MaxMembers:
		return fail(codeGroupMaxSizeReached)
	case req.MemberEpoch == -1:
		e.remove(g, m)
		resp.MemberID, resp.MemberEpoch = &m.id, -1
		return resp
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
	m.until = time.Now().Add(g.config.session) // first, so that the timer never finds it in the future
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
	if g.learn(topics) {
		g.epoch++
	}
	e.assign(g)

	full := req.MemberEpoch == 0 || req.SubscribedTopicNames != nil
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

// lookup gives the topics that the group's members subscribe to as they are
// now, those that do not exist with the zero Topic; it asks Log, so e.mu is not
// held.
func (e *Engine) lookup(name string, extra []string) map[string]Topic {
	topics := make(map[string]Topic)
	for _, n := range extra {
		topics[n] = Topic{}
	}
	e.mu.Lock()
	if g := e.groups[name]; g != nil {
		for _, m := range g.members {
			for _, n := range m.topics {
				topics[n] = Topic{}
			}
		}
	}
	e.mu.Unlock()
	for n := range topics {
		topics[n], _ = e.cfg.Log.TopicByName(n)
	}
	return topics
}

// learn takes in what a lookup found and drops topics that nobody subscribes to
// any more; it tells whether the assignment has to follow. Names that another
// heartbeat looked up meanwhile stay as that one left them.
func (g *group) learn(found map[string]Topic) (changed bool) {
	wanted := make(map[string]bool)
	for _, m := range g.members {
		for _, n := range m.topics {
			wanted[n] = true
		}
	}
	for n, t := range found {
		if old, known := g.topics[n]; wanted[n] && t != (Topic{}) && (!known || old != t) {
			g.topics[n] = t
			g.begun[t.ID] = max(g.begun[t.ID], t.Partitions)
			changed = true
		}
	}
	for n := range g.topics {
		if t, looked := found[n]; !wanted[n] || (looked && t == Topic{}) {
			delete(g.topics, n)
			changed = true
		}
	}
	return changed
}

func (e *Engine) sessionTimeout(g *group, m *member) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed && g.members[m.id] == m && !time.Now().Before(m.until) { // no heartbeat overtook the timer
		e.remove(g, m)
	}
}

// remove takes a member out of the group. Its sessions and acquired records
// stay: Kafka 4.4.0 gives them back when the session is closed, its connection
// ends or the locks do, but not on leaving. e.mu is held.
func (e *Engine) remove(g *group, m *member) {
	m.timer.Stop()
	delete(g.members, m.id)
	g.epoch++
	g.learn(nil)
	e.assign(g)
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
