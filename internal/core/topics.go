package core

import "sync"

// absent are the topics that were told to be missing. One for the process, since
// all members of it would tell the same.
type absent struct {
	mu   sync.Mutex
	told map[string]bool
}

// SeenTopic takes note of what a broker's metadata says of a topic that somebody
// consumes from or produces to, and warns of one that does not exist: nothing
// else would tell of a wrong name. It warns again only after the topic was there
// in between.
func (c *Cluster) SeenTopic(topic string, exists bool) {
	c.absent.mu.Lock()
	told := c.absent.told[topic]
	c.absent.told[topic] = !exists
	c.absent.mu.Unlock()
	if !exists && !told {
		c.Logger().Warn("sharetxn: a topic does not exist; create it, or mend its name", "topic", topic)
	}
}
