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
			ctx := testkit.Deadline(t, 30*time.Second)
			c := startCluster(t, 600*time.Millisecond)
			const n = 30
			c.feed(ctx, t, n)
			m := c.consumer(t, AcknowledgementMode(mode), MaxPollRecords(10))
			first := gather(ctx, t, m, n)
			if done, _, _, _ := c.totals(); done != 0 {
				t.Fatalf("%d offsets are done and nobody decided them", done)
			}
			again := gather(ctx, t, m, n)
			for _, r := range again {
				if r.DeliveryCount() != 2 {
					t.Fatalf("%s: delivery %d, want 2", where(r), r.DeliveryCount())
				}
			}
			if done, _, _, _ := c.totals(); done != 0 || len(first) != n {
				t.Fatalf("%d offsets are done", done)
			}
		})
	}
}
