package txnmanager

import (
	"cmp"
	"slices"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/groupmeta"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// part is one partition's acknowledgements of one member.
type part struct {
	tp      acks.TopicIDPartition
	batches []acks.AcknowledgementBatch
}

// stageRequest is what one leader is asked for one member: it is built once and
// repeated byte for byte.
type stageRequest struct {
	node   int32
	member groupmeta.ShareGroupMetadata
	parts  []part
	moved  bool // another node refused its partitions as not their leader
	sent   bool // it may have arrived

	profile     wire.Profile // it was sent in
	contradicts bool         // it is to be refused: see confirm
}

// without is the request less the partitions that moved; nil if none is left.
func (r *stageRequest) without(moved []part) *stageRequest {
	rest := *r
	rest.parts = nil
	for _, p := range r.parts {
		if !slices.ContainsFunc(moved, func(m part) bool { return keyOf(m.tp) == keyOf(p.tp) }) {
			rest.parts = append(rest.parts, p)
		}
	}
	if len(rest.parts) == 0 {
		return nil
	}
	return &rest
}

// plan groups by member and leader, ascending by node. Partitions without a
// leader come back as leaderless.
func plan(members []*buffered, leader func(acks.TopicIDPartition) (int32, bool)) (reqs []*stageRequest, leaderless []acks.TopicIDPartition) {
	for _, m := range members {
		byNode := make(map[int32]*stageRequest)
		for tp, batches := range m.set.Partitions() {
			node, ok := leader(tp)
			if !ok {
				leaderless = append(leaderless, tp)
				continue
			}
			r := byNode[node]
			if r == nil {
				r = &stageRequest{node: node, member: m.member}
				byNode[node] = r
				reqs = append(reqs, r)
			}
			r.parts = append(r.parts, part{tp, batches})
		}
	}
	slices.SortStableFunc(reqs, func(a, b *stageRequest) int { return cmp.Compare(a.node, b.node) })
	return reqs, leaderless
}

// reroute makes requests to the leaders that partitions have now. Those that
// moved because r's node refused them must have another one, and only once; if
// one has not, it comes back as stuck.
func (r *stageRequest) reroute(parts []part, refused bool, leader func(acks.TopicIDPartition) (int32, bool)) (reqs []*stageRequest, stuck *part) {
	byNode := make(map[int32]*stageRequest)
	for _, p := range parts {
		node, ok := leader(p.tp)
		switch {
		case refused && (!ok || node == r.node || r.moved):
			return nil, &p
		case !ok:
			node = r.node
		}
		n := byNode[node]
		if n == nil {
			n = &stageRequest{node: node, member: r.member, moved: r.moved || refused}
			byNode[node] = n
			reqs = append(reqs, n)
		}
		n.parts = append(n.parts, p)
	}
	return reqs, nil
}

// size is what hooks are told.
func (r *stageRequest) size() (ranges, offsets int) {
	for _, p := range r.parts {
		for _, b := range p.batches {
			ranges++
			offsets += int(b.Offsets())
		}
	}
	return ranges, offsets
}

// build makes the request; the parts are ordered by topic already.
func (r *stageRequest) build(profile wire.Profile, transactionalID string, of identity) *wire.Request {
	req := &wire.Request{
		Profile: profile, TransactionalID: &transactionalID,
		GroupID: r.member.GroupID(), MemberID: r.member.MemberID(), MemberEpoch: r.member.MemberEpoch(),
		ProducerID: of.id, ProducerEpoch: of.epoch,
	}
	for _, p := range r.parts {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].TopicID != p.tp.TopicID {
			req.Topics = append(req.Topics, wire.RequestTopic{TopicID: p.tp.TopicID})
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, wire.RequestPartition{Partition: p.tp.Partition, Batches: p.batches})
	}
	return req
}
