package shareconsumer

import "slices"

// SetTopics replaces the topics to consume from, as Topics gave them to New:
// the coordinator is told at once and assigns anew. Records of other topics that
// were polled stay this member's, to be decided as always; what waits unpolled
// still comes. Errors are of class usage (no topic, an empty name), or fatal
// with ErrClosed. Safe for concurrent use; the last call counts.
func (c *Consumer) SetTopics(topics ...string) error {
	set, err := topicSet("SetTopics", topics)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return closedError("SetTopics", c.group)
	}
	if !slices.Equal(c.subscribed, set) {
		c.subscribed = set
		signal(c.beat)
		signal(c.refresh)
	}
	return nil
}

// topicSet orders names and drops repetitions.
func topicSet(op string, topics []string) ([]string, error) {
	switch {
	case len(topics) == 0:
		return nil, usage(op, "Topics: none given")
	case slices.Contains(topics, ""):
		return nil, usage(op, "Topics: an empty name")
	}
	return slices.Compact(slices.Sorted(slices.Values(topics))), nil
}
