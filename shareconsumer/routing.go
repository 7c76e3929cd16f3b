package shareconsumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leader is where a partition is led, as far as we know.
type leader struct{ node, epoch int32 }

// metadataAge is when what is known of leaders is asked for again anyway.
const metadataAge = 5 * time.Minute

// routing keeps topics and leaders up to date: when asked to, and now and then.
func (c *Consumer) routing(ctx context.Context) {
	defer c.wg.Done()
	timer := time.NewTimer(metadataAge)
	defer timer.Stop()
	failures, leaderless := 0, 0 // in a row
	for {
		select {
		case <-c.refresh:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if err := c.loadMetadata(ctx); err != nil && ctx.Err() == nil {
			failures++
			c.core.Logger().Warn("sharetxn: metadata not loaded, again", "group", c.group, "err", err)
		} else {
			failures = 0
		}
		c.mu.Lock()
		missing := c.route()
		c.mu.Unlock()
		c.routed(false)
		timer.Reset(metadataAge)
		if missing && failures == 0 {
			leaderless++
		} else {
			leaderless = 0
		}
		if n := max(failures, leaderless); n > 0 { // not at once: the cluster may be changing
			select {
			case <-time.After(backoff(n)):
				signal(c.refresh)
			case <-ctx.Done():
				return
			}
		}
	}
}

func (c *Consumer) loadMetadata(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	c.mu.Lock()
	topics := c.subscribed
	c.mu.Unlock()
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return err
	}
	c.learnTopics(resp)
	for _, t := range resp.Topics {
		if t.Topic != nil && (t.ErrorCode == 0 || t.ErrorCode == kerr.UnknownTopicOrPartition.Code) {
			c.core.SeenTopic(*t.Topic, t.ErrorCode == 0)
		}
	}
	return nil
}

// learnTopics takes over ids and leaders.
func (c *Consumer) learnTopics(resp *kmsg.MetadataResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range resp.Topics {
		if t.Topic != nil && (t.ErrorCode == 0 || t.ErrorCode == kerr.UnknownTopicOrPartition.Code) {
			c.denied(*t.Topic, t.TopicID)
		}
		if t.ErrorCode == kerr.TopicAuthorizationFailed.Code {
			name := ""
			if t.Topic != nil {
				name = *t.Topic
			}
			e := brokerError("Metadata", c.group, sharetxn.ClassAbortable, t.ErrorCode)
			e.Topic, e.Partition = name, -1
			c.tell(e)
		}
		if t.ErrorCode != 0 || t.Topic == nil {
			continue
		}
		c.topics[t.TopicID] = *t.Topic
		for _, p := range t.Partitions {
			c.learn(partKey{t.TopicID, p.Partition}, leader{p.Leader, p.LeaderEpoch})
		}
	}
}

// uncovered tells whether nothing is assigned of a subscribed topic, so that it
// may be one that does not exist. c.mu is held.
func (c *Consumer) uncovered() bool {
	covered := make(map[string]bool)
	for k := range c.assigned {
		covered[c.topics[k.topic]] = true
	}
	return slices.ContainsFunc(c.subscribed, func(name string) bool { return !covered[name] })
}

// denied drops the leaders of what had a topic's name and is not there any more
// as far as metadata knows: it is not fetched from until they are known again.
// Before Kafka 4.4 brokers fail whole fetches for it. What was acquired stays:
// metadata may be behind. c.mu is held.
func (c *Consumer) denied(topic string, now [16]byte) {
	maps.DeleteFunc(c.leaders, func(k partKey, _ leader) bool { return k.topic != now && c.topics[k.topic] == topic })
}

// learn takes over a leader unless a newer one is known; c.mu is held.
func (c *Consumer) learn(k partKey, l leader) {
	if was, known := c.leaders[k]; !known || l.epoch < 0 || l.epoch >= was.epoch {
		c.leaders[k] = l
	}
}

// noLeader is no hint.
var noLeader = leader{-1, -1}

var errRecreated = errors.New("the topic was deleted and created again")

// retire drops what belongs to topic ids that are none any more: the coordinator
// assigns the same name under another, and does not assign this one. Metadata
// alone would not do, since a broker may be behind. c.mu is held.
func (c *Consumer) retire() {
	now := make(map[string][16]byte)
	assigned := make(map[[16]byte]bool)
	for k := range c.assigned {
		assigned[k.topic] = true
		if name, known := c.topics[k.topic]; known {
			now[name] = k.topic
		}
	}
	for id, name := range c.topics {
		if newer, again := now[name]; !again || newer == id || assigned[id] {
			continue
		}
		c.lose(errRecreated, func(l *lease) bool { return l.tp.TopicID == id })
		delete(c.topics, id)
		maps.DeleteFunc(c.leaders, func(k partKey, _ leader) bool { return k.topic == id })
	}
}

// route tells each session which partitions it is to fetch, and notes the
// assignment by name if it is another than was told last. It reports whether
// something assigned has no known leader. c.mu is held; call routed afterwards.
func (c *Consumer) route() (missing bool) {
	c.retire()
	want := make(map[int32]map[partKey]acks.TopicIDPartition)
	named := make(map[string][]int32)
	for k := range c.assigned {
		name, known := c.topics[k.topic]
		l, led := c.leaders[k]
		if !known || !led || l.node < 0 {
			missing = true
			continue
		}
		named[name] = append(named[name], k.part)
		if c.paused.has(name, k.part) {
			continue
		}
		if want[l.node] == nil {
			want[l.node] = make(map[partKey]acks.TopicIDPartition)
		}
		want[l.node][k] = acks.TopicIDPartition{TopicID: k.topic, Topic: name, Partition: k.part}
	}
	for node := range want {
		if c.sessions[node] == nil && !c.closed {
			c.sessions[node] = newSession(c, node)
			c.wg.Add(1)
			c.spawn(c.sessions[node])
		}
	}
	for node, s := range c.sessions {
		s.want = want[node]
		s.signal()
	}
	for _, ps := range named {
		slices.Sort(ps)
	}
	if !missing && !maps.EqualFunc(named, c.told, slices.Equal) {
		c.told = named
		c.tellMember(sharetxn.Member{Event: sharetxn.MemberAssigned, Epoch: c.epoch, Assigned: named})
		if c.cfg.onAssigned != nil {
			its := make(map[string][]int32, len(named)) // to do with as it likes
			for topic, ps := range named {
				its[topic] = slices.Clone(ps)
			}
			c.news.add(func() { c.cfg.onAssigned(its) })
		}
	}
	return missing
}

// routed does what route found to be done, without c.mu.
func (c *Consumer) routed(missing bool) {
	if missing {
		signal(c.refresh)
	}
	c.news.tell()
}
