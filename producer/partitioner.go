package producer

import (
	"errors"

	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/twmb/franz-go/pkg/kgo"
)

// manualFor keeps the partition of records of some topics and leaves all others
// to the partitioner that the client would have had.
type manualFor struct {
	topics map[string]bool
	others kgo.Partitioner
}

var _ kgo.Partitioner = manualFor{}

// ForTopic implements kgo.Partitioner.
func (m manualFor) ForTopic(topic string) kgo.TopicPartitioner {
	if m.topics[topic] {
		return kgo.ManualPartitioner().ForTopic(topic)
	}
	return m.others.ForTopic(topic)
}

var errNoPartitioner = errors.New("kgo does not tell its partitioner")

// manually is the option that makes manualFor of the options' own partitioner.
func manually(co *core.Cluster, topics []string, opts []kgo.Opt) (kgo.Opt, error) {
	values, err := co.OptValues("RecordPartitioner", opts...)
	if err != nil {
		return nil, err
	}
	m := manualFor{topics: make(map[string]bool, len(topics))}
	for _, t := range topics {
		m.topics[t] = true
	}
	var ok bool
	if m.others, ok = values[0].(kgo.Partitioner); !ok {
		return nil, errNoPartitioner
	}
	return kgo.RecordPartitioner(m), nil
}
