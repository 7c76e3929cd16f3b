package shareconsumer

import (
	"maps"
	"slices"
)

// pauses are the topics and partitions that are not fetched from. A topic's
// partitions are nil where it is paused as a whole.
type pauses struct {
	topics     map[string]bool
	partitions map[string]map[int32]bool
}

func (p *pauses) has(topic string, partition int32) bool {
	return p.topics[topic] || p.partitions[topic][partition]
}

func (p *pauses) pause(topic string, partitions []int32) {
	if p.topics == nil {
		p.topics, p.partitions = make(map[string]bool), make(map[string]map[int32]bool)
	}
	if len(partitions) == 0 {
		p.topics[topic] = true
		return
	}
	if p.partitions[topic] == nil {
		p.partitions[topic] = make(map[int32]bool)
	}
	for _, n := range partitions {
		p.partitions[topic][n] = true
	}
}

func (p *pauses) resume(topic string, partitions []int32) {
	if len(partitions) == 0 {
		delete(p.topics, topic)
		delete(p.partitions, topic)
		return
	}
	for _, n := range partitions {
		delete(p.partitions[topic], n)
	}
	if len(p.partitions[topic]) == 0 {
		delete(p.partitions, topic)
	}
}

func (p *pauses) all() map[string][]int32 {
	out := make(map[string][]int32, len(p.topics)+len(p.partitions))
	for topic, ns := range p.partitions {
		out[topic] = slices.Sorted(maps.Keys(ns))
	}
	for topic := range p.topics {
		out[topic] = nil
	}
	return out
}

// Pause stops fetching from partitions of a topic, or from the whole topic if
// none are named, also from partitions that are assigned later, until Resume. It
// takes effect with the next request to each broker. What is acquired by then
// still comes from Poll, since giving it back would cost it a delivery; verdicts
// and renewals still go out. The assignment stays, so no other member gets the
// partitions: pause for moments, and not the topics of a group that others wait
// for. Topics that are not subscribed to may be named. Safe for concurrent use.
func (c *Consumer) Pause(topic string, partitions ...int32) {
	c.repause(func(p *pauses) { p.pause(topic, partitions) })
}

// Resume undoes Pause of partitions, or of the whole topic and of each of its
// partitions if none are named. A topic that is paused as a whole stays so when
// partitions are named. Safe for concurrent use.
func (c *Consumer) Resume(topic string, partitions ...int32) {
	c.repause(func(p *pauses) { p.resume(topic, partitions) })
}

// Paused gives what is paused: topics, each with its partitions in order, or nil
// for the whole topic. Safe for concurrent use.
func (c *Consumer) Paused() map[string][]int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused.all()
}

func (c *Consumer) repause(change func(*pauses)) {
	c.mu.Lock()
	change(&c.paused)
	missing := c.route()
	c.mu.Unlock()
	c.routed(missing)
}
