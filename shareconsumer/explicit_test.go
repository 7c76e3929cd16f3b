package shareconsumer

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestExplicitDrains(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 10*time.Second)
	const n = 900
	c.feed(ctx, t, n)
	m := c.consumer(t, MaxPollRecords(70))
	seen := make(map[string]int)
	for len(seen) < n {
		b := poll(ctx, t, m)
		if b.Len() == 0 || b.Len() > 70 {
			t.Fatalf("a batch of %d records", b.Len())
		}
		for _, r := range b.Records() {
			seen[string(r.Value)]++
			if r.DeliveryCount() != 1 {
				t.Fatalf("%s: delivery %d", where(r), r.DeliveryCount())
			}
			r.Accept()
		}
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c.waitDone(ctx, t, n)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// Polling again and again acknowledges nothing in explicit and transactional
// mode: what nobody decided comes back when the lock ends.
func TestPollNeverAcknowledges(t *testing.T) {
	for _, mode := range []Mode{Explicit, Transactional} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testkit.Deadline(t, 30*time.Second)
			c := startCluster(t, 500*time.Millisecond)
			if err := c.SetGroupConfig("g", map[string]string{"share.delivery.count.limit": "10"}); err != nil { // none is archived meanwhile
				t.Fatal(err)
			}
			const n = 30
			c.feed(ctx, t, n)
			m := c.consumer(t, AcknowledgementMode(mode), MaxPollRecords(10))
			deliveries := make(map[string]int32)
			for twice := 0; twice < n; {
				for _, r := range poll(ctx, t, m).Records() {
					if deliveries[string(r.Value)] < 2 && r.DeliveryCount() >= 2 {
						twice++
					}
					deliveries[string(r.Value)] = r.DeliveryCount()
				}
				if done, _, _, _ := c.totals(); done != 0 {
					t.Fatalf("%d offsets are done and nobody decided them", done)
				}
			}
		})
	}
}
