package sharetxn

import (
	"fmt"
	"strings"
)

// InternalTopicsError: coordinators are not available, since Kafka's internal
// topics want more replicas than there are brokers and cannot be created. It is
// what one broker with stock settings answers for ever. Poll, and what
// initialises a producer, return it within seconds, with class abortable: where
// more brokers are still to start it heals by itself, and the next call works.
// Otherwise set what it says in the brokers' configuration. Get it with
// errors.As.
type InternalTopicsError struct {
	Brokers int // alive, as metadata tells
	Topics  []InternalTopic
}

// InternalTopic is one topic that cannot be created.
type InternalTopic struct {
	Topic    string // __consumer_offsets, ...
	Setting  string // the brokers' that is too high
	Replicas int    // its value
}

func (e *InternalTopicsError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sharetxn: no coordinator: internal topics want more replicas than the brokers alive, %d", e.Brokers)
	for _, t := range e.Topics {
		fmt.Fprintf(&b, "; %s wants %d (%s=%d)", t.Topic, t.Replicas, t.Setting, t.Replicas)
	}
	settings := make([]string, len(e.Topics))
	for i, t := range e.Topics {
		settings[i] = fmt.Sprintf("%s=%d", t.Setting, e.Brokers)
	}
	fmt.Fprintf(&b, ": start more brokers, or set %s in each broker's configuration and restart it", strings.Join(settings, ", "))
	return b.String()
}
