package shareconsumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// A poll whose context has ended gives what is here, and has nothing fetched: what it
// does not take would be acquired for nobody.
func TestGlanceFetchesNothing(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	c := startCluster(t, 25*time.Second)
	c.feed(ctx, t, 3)
	m := c.consumer(t, AcknowledgementMode(Transactional))
	gather(ctx, t, m, 3)
	still := func() int { // every session has learned that nobody polls
		n := -1
		testkit.Eventually(ctx, t, "no fetch is under way", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, s := range m.sessions {
				if s.fetches {
					return false
				}
			}
			n = c.Traffic(keyShareFetch).Requests
			return true
		})
		return n
	}
	before := still()
	ended, end := context.WithCancel(ctx)
	end()
	for range 20_000 {
		if b, err := m.Poll(ended); b != nil || !errors.Is(err, context.Canceled) {
			t.Fatalf("%v, %v", b, err)
		}
	}
	if after := still(); after != before {
		t.Errorf("%d fetches", after-before)
	}
	c.feed(ctx, t, 3)
	testkit.Eventually(ctx, t, "what is fetched is given", func() bool {
		waiting, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		b, err := m.Poll(waiting)
		return err == nil && b.Len() > 0
	})
}
