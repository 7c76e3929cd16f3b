package contender

import (
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// requests counts what kgo clients send, by the name of the request: what a way of
// doing things costs that no busy machine can change. Safe for concurrent use.
type requests struct {
	mu   sync.Mutex
	sent map[string]int
}

var _ kgo.HookBrokerWrite = (*requests)(nil)

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (q *requests) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err != nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sent == nil {
		q.sent = make(map[string]int)
	}
	q.sent[kmsg.NameForKey(key)]++
}

// now is what was sent so far.
func (q *requests) now() map[string]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.sent)
}

// since is what was sent after an earlier now.
func (q *requests) since(before map[string]int) map[string]int {
	out := make(map[string]int)
	for name, n := range q.now() {
		if n -= before[name]; n > 0 {
			out[name] = n
		}
	}
	return out
}
