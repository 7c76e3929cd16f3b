package share

import (
	"cmp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// assign makes the target assignment for the group's present epoch, at once or,
// as Kafka 4.3 does, an interval after the one before; e.mu is held.
func (e *Engine) assign(g *group) {
	if g.target == g.epoch || g.assignTimer != nil {
		return
	}
	if wait := g.config.interval; wait > 0 {
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
