package sharetxntest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
)

// WaitDrained waits until the group has nothing left of all topics that its
// members ever subscribed to or that it read: the lag is 0, and no record is
// acquired or staged. It ends the test, and says what is left, after a minute;
// in virtual time after an hour of that. A group that was never there is not
// drained.
func (c *Cluster) WaitDrained(t testing.TB, group string) {
	t.Helper()
	ctx, cancel := c.bounded()
	defer cancel()
	if err := c.drained(ctx, group, nil); err != nil {
		t.Fatalf("sharetxntest.WaitDrained: %v", err)
	}
}

// drained asks the brokers' state again and again, at first often, and a last
// time when ended is closed.
func (c *Cluster) drained(ctx context.Context, group string, ended <-chan struct{}) error {
	var last error
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		left, err := c.left(ctx, group)
		switch {
		case err == nil && len(left) == 0:
			c.broker.Note(check.Drained{})
			return nil
		case err == nil:
			err = errors.New(strings.Join(left, "; "))
		}
		if last != nil {
			return fmt.Errorf("group %s is not drained: %w: %w", group, err, last)
		}
		select {
		case <-time.After(pause):
		case <-ended:
			last = errEnded
		case <-ctx.Done():
			return fmt.Errorf("group %s is not drained: %w: %w", group, err, context.Cause(ctx))
		}
	}
}

// left says what the group has not done yet, a line for each partition.
func (c *Cluster) left(ctx context.Context, group string) (left []string, err error) {
	groups, err := c.admin.DescribeShareGroups(ctx, group)
	if err == nil {
		err = groups.Error()
	}
	if err != nil {
		return nil, err
	}
	topics := groups[group].SubscribedTopics()
	for _, id := range c.broker.Subscribed(group) {
		if name := c.broker.TopicName(id); name != "" {
			topics = append(topics, name)
		}
	}
	states := make(map[string]map[int32]share.PartitionState)
	for _, s := range c.broker.PartitionStates(group) {
		name := c.broker.TopicName(s.Topic)
		if states[name] == nil {
			states[name] = make(map[int32]share.PartitionState)
		}
		states[name][s.Partition] = s
		topics = append(topics, name)
	}
	slices.Sort(topics)
	for _, topic := range slices.Compact(topics) {
		for p := range c.broker.Partitions(topic) {
			bounds, err := c.broker.Bounds(topic, p)
			if err != nil {
				return nil, fmt.Errorf("%s-%d: %w", topic, p, err)
			}
			s, read := states[topic][p]
			if what := undone(s, read, bounds); what != "" {
				left = append(left, fmt.Sprintf("%s-%d: %s", topic, p, what))
			}
		}
	}
	if len(topics) == 0 {
		return nil, errors.New("it read nothing and subscribes to nothing")
	}
	return left, nil
}

// undone says what is left of a share partition; nothing is the empty string.
func undone(s share.PartitionState, read bool, log share.Bounds) string {
	switch {
	case !read && log.End > log.Start:
		return fmt.Sprintf("%d records were never read", log.End-log.Start)
	case !read || s.Start >= log.End:
		return ""
	}
	return fmt.Sprintf("start offset %d of %d, %d offsets available, %d acquired, %d staged", s.Start, log.End, s.Available, s.Acquired, s.Pending)
}
