package broker

import (
	"regexp"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicName is what Kafka takes for one, but for "." and "..".
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// autoCreate makes the topics that a client asks for and that do not exist, with
// one partition as num.partitions is by default, where the client allows that.
// Kafka answers first that a topic does not exist, and has it a moment later; the
// client's next question then finds it. Here the first does.
func (c *Cluster) autoCreate(req *kmsg.MetadataRequest) {
	if !c.cfg.AutoCreateTopics || !req.AllowAutoTopicCreation {
		return
	}
	for _, t := range req.Topics {
		if t.Topic == nil || c.Partitions(*t.Topic) > 0 {
			continue
		}
		// Kafka's internal topics are not topics here.
		if name := *t.Topic; strings.HasPrefix(name, "__") || strings.Trim(name, ".") == "" || !topicName.MatchString(name) {
			continue
		}
		if err := c.CreateTopic(*t.Topic, 1); err != nil {
			c.cfg.Logger.Warn("topic not created", "topic", *t.Topic, "err", err)
		}
	}
}
