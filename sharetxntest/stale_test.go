package sharetxntest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
)

// While a member works, its leader forgets that it holds the records, and
// another member finishes them. What the slow one then stages lies below the
// group's start, where a broker says success and stages nothing: it must abort.
func TestFinishedByAnother(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	for name, forget := range map[string]func(t *testing.T, k *Cluster){
		"restart": func(t *testing.T, k *Cluster) { k.Restart(t, 0) },
		"move":    func(t *testing.T, k *Cluster) { k.MoveLeader(t, "in", 0, 1) },
		"there and back": func(t *testing.T, k *Cluster) {
			k.MoveLeader(t, "in", 0, 1)
			k.MoveLeader(t, "in", 0, 0)
		},
	} {
		for _, profile := range []sharetxn.Profile{sharetxn.ProfileDraft95, sharetxn.ProfileKIP93} {
			t.Run(name+"/"+profile.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := Start(t, Brokers(2), Topic("in", 1), Topic("out", 1), Profile(profile))
					k.Feed(t, numbers(3)...)
					cl := k.Connect(t)
					c, err := shareconsumer.New(cl, "g", shareconsumer.Topics("in"), shareconsumer.AcknowledgementMode(shareconsumer.Transactional))
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = c.Close() }()
					p, err := producer.New(cl, "slow")
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = p.Close() }()
					b, err := c.Poll(t.Context())
					if err != nil || b.Len() != 3 {
						t.Fatalf("%v, %v", b, err)
					}
					outcome, err := p.InTransaction(t.Context(), b, func(ctx context.Context, txn *producer.Txn) error {
						if err := (copier{}).copy(ctx, txn, b); err != nil {
							return err
						}
						forget(t, k)
						k.RunUntilDrained(t, "g", copier{cl: k.Connect(t)})
						return nil
					})
					if outcome != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrStale) {
						t.Errorf("the slow member's transaction: %v, %v", outcome, err)
					}
					wantNumbers(t, k, "out", 3)
					k.AssertExactlyOnce(t, "g", "out")
				})
			})
		}
	}
}
