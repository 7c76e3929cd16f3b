package share

import (
	"maps"
	"slices"

	"github.com/sharetxn/sharetxn/acks"
)

// GroupImage is what of a group survives its coordinator. Members do not: they
// are told UNKNOWN_MEMBER_ID and join again.
type GroupImage struct {
	Name   string
	Epoch  int32             `json:",omitempty"`
	Target int32             `json:",omitempty"`
	Set    map[string]string `json:",omitempty"` // configs of its own
	Begun  []BegunTopic      `json:",omitempty"`
}

// BegunTopic is a topic of which the group has offsets, if unset.
type BegunTopic struct {
	Topic      [16]byte
	Partitions int32
}

// PartitionImage is what of a share partition survives its leader: what
// partition.leaderMoved leaves. Acquired records are available in it, with the
// deliveries that were written down, and so is what is staged where the profile
// has that in memory only.
type PartitionImage struct {
	Group           string
	Topic           [16]byte
	Partition       int32
	Start           int64
	Written         bool  `json:",omitempty"`
	Told            int64 `json:",omitempty"`
	ArchivedAtLimit int64 `json:",omitempty"`
	Entries         []EntryImage
}

// EntryImage is a range of offsets in one state; the first begins at the
// partition's Start, and each where the one before ended.
type EntryImage struct {
	Last  int64
	State State
	Count int16 `json:",omitempty"`
	// of staged ones
	Owner         string    `json:",omitempty"`
	ProducerID    int64     `json:",omitempty"`
	ProducerEpoch int16     `json:",omitempty"`
	Verdict       acks.Type `json:",omitempty"`
}

// Kept is a group or a share partition as it is to be kept; without an image it
// is gone.
type Kept struct {
	Group          *GroupImage
	GroupGone      string
	Partition      *PartitionImage
	PartitionGone  Place // of PartitionGroup
	PartitionGroup string
}

// changed are the groups and partitions that may be other than when Changed was
// called last.
type changed struct {
	groups map[string]struct{}
	parts  map[partKey]struct{}
}

func newChanged() *changed {
	return &changed{groups: make(map[string]struct{}), parts: make(map[partKey]struct{})}
}

// note and noteGroup do nothing where nobody keeps anything.
func (c *changed) note(k partKey) {
	if c != nil {
		c.parts[k] = struct{}{}
	}
}

func (c *changed) noteGroup(name string) {
	if c != nil {
		c.groups[name] = struct{}{}
	}
}

// Changed gives what has changed, as it is to be kept, since it was called last.
// It is for Config.Keeps.
func (e *Engine) Changed() (out []Kept) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name := range e.changed.groups {
		if g := e.groups[name]; g != nil && g.kept() {
			out = append(out, Kept{Group: g.image()})
		} else {
			out = append(out, Kept{GroupGone: name})
		}
	}
	for k := range e.changed.parts {
		if p := e.parts[k]; p != nil {
			out = append(out, Kept{Partition: p.image(k)})
		} else {
			out = append(out, Kept{PartitionGone: Place{k.topic, k.part}, PartitionGroup: k.group})
		}
	}
	clear(e.changed.groups)
	clear(e.changed.parts)
	return out
}

// kept tells whether there is anything to keep of a group: asking for one is no
// reason.
func (g *group) kept() bool { return g.epoch > 0 || len(g.config.set) > 0 || len(g.begun) > 0 }

func (g *group) image() *GroupImage {
	out := &GroupImage{Name: g.name, Epoch: g.epoch, Target: g.target, Set: maps.Clone(g.config.set)}
	for topic, n := range g.begun {
		out.Begun = append(out.Begun, BegunTopic{topic, n})
	}
	slices.SortFunc(out.Begun, func(a, b BegunTopic) int { return slices.Compare(a.Topic[:], b.Topic[:]) })
	return out
}

func (p *partition) image(k partKey) *PartitionImage {
	left := *p
	left.entries, left.observe, left.touch = append([]entry{}, p.entries...), nil, nil
	left.leaderMoved()
	out := &PartitionImage{
		Group: k.group, Topic: k.topic, Partition: k.part, Start: left.start, Written: left.written, Told: left.told, ArchivedAtLimit: left.archivedAtLimit,
	}
	for _, e := range left.entries {
		image := EntryImage{Last: e.last, State: e.state, Count: e.count}
		if e.state == TxPending {
			image.Owner, image.ProducerID, image.ProducerEpoch, image.Verdict = e.owner, e.producerID, e.producerEpoch, e.verdict
		}
		out.Entries = append(out.Entries, image)
	}
	return out
}

// Restore takes in what was kept, before anything else is asked of the engine.
// Configs that do not hold any more are told to the logger and left out.
func (e *Engine) Restore(groups []GroupImage, parts []PartitionImage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range groups {
		g := e.group(x.Name)
		g.epoch, g.target = x.Epoch, x.Target
		for _, b := range x.Begun {
			g.begun[b.Topic] = b.Partitions
		}
		if cfg, err := e.cfg.groupConfig(maps.Clone(x.Set)); err != nil {
			e.cfg.Logger.Error("group config ignored", "group", x.Name, "err", err)
		} else if len(x.Set) > 0 {
			g.config = cfg
		}
	}
	for _, x := range parts {
		k := partKey{x.Group, x.Topic, x.Partition}
		p := e.newPartition(k, x.Start)
		p.written, p.told, p.archivedAtLimit = x.Written, x.Told, x.ArchivedAtLimit
		for _, image := range x.Entries {
			p.entries = append(p.entries, entry{
				first: p.end, last: image.Last, state: image.State, count: image.Count, persisted: image.Count,
				owner: image.Owner, producerID: image.ProducerID, producerEpoch: image.ProducerEpoch, verdict: image.Verdict,
			})
			p.end = image.Last + 1
		}
		e.parts[k] = p
	}
}
