package broker

import (
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A topic is made for who asks for that, and only where the cluster does so.
func TestAutoCreateTopics(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster, client bool
		topic           string
		made            bool
	}{
		"both":            {true, true, "new", true},
		"not the client":  {true, false, "new", false},
		"not the cluster": {false, true, "new", false},
		"internal":        {true, true, "__consumer_offsets", false},
		"a bad name":      {true, true, "no topic", false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			c := start(t, Config{Brokers: 3, AutoCreateTopics: tc.cluster, Topics: map[string]int32{"there": 2}})
			opts := []kgo.Opt{kgo.UnknownTopicRetries(1), kgo.MetadataMinAge(10 * time.Millisecond)}
			if tc.client {
				opts = append(opts, kgo.AllowAutoTopicCreation())
			}
			cl := client(t, c, opts...)
			err := cl.ProduceSync(ctx, &kgo.Record{Topic: tc.topic, Value: []byte("x")}).FirstErr()
			switch {
			case tc.made && (err != nil || c.Partitions(tc.topic) != 1 || c.Leader(tc.topic, 0) != 0):
				t.Errorf("produced: %v; %d partitions", err, c.Partitions(tc.topic))
			case !tc.made && (!errors.Is(err, kerr.UnknownTopicOrPartition) || c.Partitions(tc.topic) != 0):
				t.Errorf("produced: %v; %d partitions", err, c.Partitions(tc.topic))
			}
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "there", Value: []byte("x")}).FirstErr(); err != nil || c.Partitions("there") != 2 {
				t.Errorf("to a topic that was there: %v", err)
			}
		})
	}
}
