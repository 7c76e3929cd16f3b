package share

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Engine is all share groups of the cluster: the group coordinator's side and
// the partition leaders' side, told apart by the node a request came to. Safe
// for concurrent use. Its state has one lock, which is never held over a call
// of Log or Txns.
type Engine struct {
	cfg Config
	sem semantics

	mu       sync.Mutex
	staging  bool
	groups   map[string]*group
	parts    map[partKey]*partition
	sessions map[sessionKey]*session
	decided  map[int64]int16 // newest marker epoch by producer id
	wake     chan struct{}   // closed and replaced when something may have become available
	timer    *time.Timer     // fires at the earliest lock's end
	timerAt  time.Time
	moves    int      // of leaders, so far
	changed  *changed // nil: nobody keeps anything
	closed   bool
}

type partKey struct {
	group string
	topic [16]byte
	part  int32
}

// New makes an Engine without groups.
func New(cfg Config) *Engine {
	e := &Engine{
		cfg:      cfg.withDefaults(),
		sem:      semanticsOf(cfg.Profile),
		staging:  cfg.Staging,
		groups:   make(map[string]*group),
		parts:    make(map[partKey]*partition),
		sessions: make(map[sessionKey]*session),
		decided:  make(map[int64]int16),
		wake:     make(chan struct{}),
	}
	if cfg.Keeps {
		e.changed = newChanged()
	}
	return e
}

// Close stops all timers and wakes whoever is parked.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.timer != nil {
		e.timer.Stop()
	}
	for _, g := range e.groups {
		g.stopTimers()
	}
	e.broadcast()
}

// Handle answers requests of keys 76 to 79 and 90 to 92. A ShareFetch may wait
// for as long as it asks for, or until ctx ends.
func (e *Engine) Handle(ctx context.Context, c Conn, req kmsg.Request) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.ShareGroupHeartbeatRequest:
		return e.heartbeat(c, req)
	case *kmsg.ShareGroupDescribeRequest:
		return e.describe(c, req)
	case *kmsg.ShareFetchRequest:
		return e.fetch(ctx, c, req)
	case *kmsg.ShareAcknowledgeRequest:
		return e.acknowledge(c, req)
	case *kmsg.DescribeShareGroupOffsetsRequest:
		return e.describeOffsets(ctx, c, req)
	case *kmsg.AlterShareGroupOffsetsRequest:
		return e.alterOffsets(c, req)
	case *kmsg.DeleteShareGroupOffsetsRequest:
		return e.deleteOffsets(c, req)
	}
	return nil
}

// broadcast wakes parked fetches; e.mu is held.
func (e *Engine) broadcast() {
	close(e.wake)
	e.wake = make(chan struct{})
}

// Appended says that a log grew or its last stable offset moved.
func (e *Engine) Appended() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broadcast()
}

// LeaderChanged says that a partition has a new leader, which knows only what
// was persisted: partition.leaderMoved.
func (e *Engine) LeaderChanged(topic [16]byte, part int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, p := range e.parts {
		if k.topic == topic && k.part == part {
			p.leaderMoved()
		}
	}
	e.moves++
	e.broadcast()
}

// NodeDown says that a broker went down and its memory with it: its share
// sessions are gone, and the partitions it leads are as a new leader would find
// them. Requests under way may acquire and stage until their connections are
// cut, so it is called before that, lest the connections' ends look like
// members that left, and again after it.
func (e *Engine) NodeDown(node int32) {
	leads := e.leads(node)
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.sessions, func(k sessionKey, _ *session) bool { return k.node == node })
	for k, p := range e.parts {
		if leads(topicPart{k.topic, k.part}) {
			p.leaderMoved()
		}
	}
	e.broadcast()
}

// Staged tells whether any record is staged.
func (e *Engine) Staged() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.anyStaged()
}

func (e *Engine) anyStaged() bool {
	for _, p := range e.parts {
		if p.pending() {
			return true
		}
	}
	return false
}

// SetStaging says whether the finalized features have staging. Turning it off is
// refused, with false, while any record is staged (KIP-1289, Downgrade).
func (e *Engine) SetStaging(on bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !on && e.anyStaged() {
		return false
	}
	e.staging = on
	return true
}

// arm makes sure that the lock timer fires at the deadline or earlier; firing
// early costs a look. e.mu is held.
func (e *Engine) arm(deadline time.Time) {
	if e.closed || (!e.timerAt.IsZero() && !deadline.Before(e.timerAt)) {
		return
	}
	e.timerAt = deadline
	if e.timer == nil {
		e.timer = time.AfterFunc(time.Until(deadline), e.expireLocks)
		return
	}
	e.timer.Reset(time.Until(deadline))
}

func (e *Engine) expireLocks() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timerAt = time.Time{}
	if e.closed {
		return
	}
	now, changed := time.Now(), false
	var next time.Time
	for k, p := range e.parts {
		e.partition(k)
		changed = p.expire(now) || changed
		if at := p.earliest(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if changed {
		e.broadcast()
	}
	if !next.IsZero() {
		e.arm(next)
	}
}

// newPartition makes a share partition that tells the engine's observer, and who
// keeps it.
func (e *Engine) newPartition(k partKey, start int64) *partition {
	p := newPartition(start, e.sem)
	if e.changed != nil {
		e.changed.note(k)
		p.touch = func() { e.changed.note(k) }
	}
	if e.cfg.Observe != nil {
		p.observe = func(ev Event) { e.observe(k, ev) }
	}
	return p
}

// observe tells what happened to a share partition, whether it is loaded or not.
func (e *Engine) observe(k partKey, ev Event) {
	if e.cfg.Observe == nil {
		return
	}
	ev.Group, ev.Topic, ev.Partition = k.group, k.topic, k.part
	e.cfg.Observe(ev)
}

// partition gives a loaded share partition with the group's present limits;
// e.mu is held.
func (e *Engine) partition(k partKey) *partition {
	p := e.parts[k]
	if p != nil {
		cfg := e.group(k.group).config
		p.setLimits(limits{delivery: cfg.limit, locks: cfg.locks})
	}
	return p
}

// group gives the group, made at first sight; e.mu is held. Whoever asks may
// change it.
func (e *Engine) group(name string) *group {
	e.changed.noteGroup(name)
	g := e.groups[name]
	if g == nil {
		g = &group{name: name, members: make(map[string]*member), topics: make(map[string]Topic), begun: make(map[[16]byte]int32), config: e.cfg.groupDefaults()}
		if set, ok := e.cfg.GroupConfigs[name]; ok {
			if cfg, err := e.cfg.groupConfig(maps.Clone(set)); err == nil {
				g.config = cfg
			} else {
				e.cfg.Logger.Error("group config ignored", "group", name, "err", err)
			}
		}
		e.groups[name] = g
	}
	return g
}

// SetGroupConfig changes group configs; a nil value puts one back to its
// default. All or nothing; the error says what Kafka calls INVALID_CONFIG.
func (e *Engine) SetGroupConfig(name string, kv map[string]*string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.group(name)
	set := maps.Clone(g.config.set)
	for k, v := range kv {
		if v == nil {
			delete(set, k)
		} else {
			set[k] = *v
		}
	}
	cfg, err := e.cfg.groupConfig(set)
	if err != nil {
		return err
	}
	g.config = cfg
	return nil
}

// GroupConfig gives all configs of a group, which need not exist.
func (e *Engine) GroupConfig(name string) []ConfigEntry {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cfg.entries(e.group(name).config)
}

// Configured lists the groups that have configs of their own, which need not
// exist either.
func (e *Engine) Configured() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for name, g := range e.groups {
		if len(g.config.set) > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Groups lists the groups that ever had a member, with whether they have one.
func (e *Engine) Groups() map[string]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make(map[string]bool)
	for name, g := range e.groups {
		if g.epoch > 0 {
			out[name] = len(g.members) > 0
		}
	}
	return out
}

// DeleteGroup removes an empty group with its offsets and gives a Kafka code.
func (e *Engine) DeleteGroup(name string) int16 {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.groups[name]
	if g == nil || g.epoch == 0 {
		return codeGroupIDNotFound
	}
	if len(g.members) > 0 || e.pending(name) {
		return codeNonEmptyGroup
	}
	g.stopTimers()
	set := g.config
	delete(e.groups, name)
	e.group(name).config = set // configs outlive the group, as Kafka keeps them elsewhere
	maps.DeleteFunc(e.sessions, func(k sessionKey, _ *session) bool { return k.group == name })
	e.forget(func(k partKey) bool { return k.group == name })
	return codeNone
}

// forget removes share partitions; e.mu is held.
func (e *Engine) forget(which func(partKey) bool) {
	for k := range e.parts {
		if which(k) {
			e.unset(k)
		}
	}
}

// unset removes a share partition, which may not be loaded: where the group starts
// there is the reset policy's to say. e.mu is held.
func (e *Engine) unset(k partKey) {
	delete(e.parts, k)
	e.changed.note(k)
	e.observe(k, Event{Kind: EventReset, First: -1, Last: -1, To: Available})
}

// pending tells whether the group has staged records; e.mu is held.
func (e *Engine) pending(group string) bool {
	for k, p := range e.parts {
		if k.group == group && p.pending() {
			return true
		}
	}
	return false
}

// PartitionState is a share partition as it is, for audits.
type PartitionState struct {
	Topic                                  [16]byte
	Partition                              int32
	Start, End                             int64 // SPSO and SPEO + 1
	Available, Acquired, Pending, Terminal int64 // offsets in the window
	ArchivedAtLimit                        int64 // offsets archived by the delivery limit, ever
	MaxDeliveries                          int16 // in the window
}

// PartitionStates gives all loaded share partitions of a group, ordered.
func (e *Engine) PartitionStates(group string) []PartitionState {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []PartitionState
	for k, p := range e.parts {
		if k.group != group {
			continue
		}
		s := PartitionState{Topic: k.topic, Partition: k.part, Start: p.start, End: p.end, ArchivedAtLimit: p.archivedAtLimit}
		for _, x := range p.entries {
			s.MaxDeliveries = max(s.MaxDeliveries, x.count)
			switch x.state {
			case Available:
				s.Available += x.offsets()
			case Acquired:
				s.Acquired += x.offsets()
			case TxPending:
				s.Pending += x.offsets()
			case Acknowledged, Archived:
				s.Terminal += x.offsets()
			}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b PartitionState) int {
		if c := slices.Compare(a.Topic[:], b.Topic[:]); c != 0 {
			return c
		}
		return int(a.Partition - b.Partition)
	})
	return out
}

// Subscribed gives the topics that members of a group ever subscribed to, but for
// those whose offsets were deleted since.
func (e *Engine) Subscribed(group string) [][16]byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.groups[group]
	if g == nil {
		return nil
	}
	return slices.Collect(maps.Keys(g.begun))
}

// StateOf tells the state, owner and delivery count of one offset; ok is false
// where the offset lies outside the window.
func (e *Engine) StateOf(group string, topic [16]byte, part int32, offset int64) (state State, owner string, count int16, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.parts[partKey{group, topic, part}]
	if p == nil {
		return 0, "", 0, false
	}
	for _, x := range p.entries {
		if x.first <= offset && offset <= x.last {
			return x.state, x.owner, x.count, true
		}
	}
	return 0, "", 0, false
}
