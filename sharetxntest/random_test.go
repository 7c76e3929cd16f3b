package sharetxntest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Faults that a seed draws, at a Processor of three members. They aim at what a
// service does when it runs; some of a seed's may find nothing to fire at.
func TestRandomFaults(t *testing.T) {
	testkit.Deadline(t, 2*time.Minute)
	for i := range 16 {
		seed, profile := uint64(i/2), []sharetxn.Profile{sharetxn.ProfileDraft95, sharetxn.ProfileKIP93}[i%2]
		t.Run(fmt.Sprint(profile, seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dice := rand.New(rand.NewPCG(seed, 0))
				k := Start(t, Brokers(3), Profile(profile), Topic("in", 6), Topic("out", 3))
				k.Feed(t, numbers(200)...)
				fired := 0
				unfired, _ := verdict(t, func(t testing.TB) {
					for range 10 {
						f := draw(dice)
						told := k.Inject(t, f)
						t.Cleanup(func() {
							select {
							case <-told:
								fired++
							default:
							}
						})
					}
					p, err := processor.New(k.Connect(t), processor.Config{
						Group: "g", Topics: []string{"in"}, Members: 3, MaxRecords: 20, DeadLetter: processor.DeadLetter{Topic: "dead"},
						Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
							return []*kgo.Record{{Topic: "out", Value: in.Value}}, nil
						},
					})
					if err != nil {
						t.Fatal(err)
					}
					k.RunUntilDrained(t, "g", p)
				})
				if fired < 3 || fired+len(unfired) != 10 {
					t.Errorf("%d of 10 faults fired; failures: %q", fired, unfired)
				}
				if profile == sharetxn.ProfileDraft95 { // the other concedes duplicates, which the audit tells apart
					wantNumbers(t, k, "out", 200)
				}
				k.AssertExactlyOnce(t, "g", "out", "dead")
			})
		})
	}
}

func draw(dice *rand.Rand) Fault {
	keys := []Key{ProduceKey, EndTxnKey, StageKey, ShareFetchKey, ShareAcknowledgeKey}
	node := func() int32 { return dice.Int32N(3) }
	actions := []Action{
		LoseRequest(), LoseAnswer(), Disconnect(), DeliverTwice(), Delay(time.Duration(dice.IntN(3000)) * time.Millisecond),
		LeaderMoves("in", dice.Int32N(6), node()), BrokerRestarts(node()), BrokersPart(0, 1+dice.Int32N(2), time.Duration(1+dice.IntN(5000))*time.Millisecond),
	}
	return Fault{Key: keys[dice.IntN(len(keys))], Nth: 1 + dice.IntN(5), Action: actions[dice.IntN(len(actions))]}
}
