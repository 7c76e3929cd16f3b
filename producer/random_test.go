package producer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Members that a seed draws, without a Processor between: how many ids they take
// turns with, how long they work, what they abort, when they give their producer
// up for a new one; and faults at whatever they ask. A fault may come too late.
func TestRandomLives(t *testing.T) {
	for i := range 24 {
		seed, profile := uint64(i/2), []sharetxn.Profile{sharetxn.ProfileDraft95, sharetxn.ProfileKIP93}[i%2]
		t.Run(fmt.Sprint(profile, seed), func(t *testing.T) {
			testkit.Deadline(t, 2*time.Minute) // of real time
			synctest.Test(t, func(t *testing.T) {
				dice := rand.New(rand.NewPCG(seed, 0))
				k := sharetxntest.Start(t, sharetxntest.Brokers(3), sharetxntest.Profile(profile), sharetxntest.Topic("in", 3), sharetxntest.Topic("out", 3),
					sharetxntest.Group("g", sharetxntest.GroupConfig{DeliveryLimit: 10}))
				for n := range 150 {
					k.Feed(t, &kgo.Record{Topic: "in", Value: fmt.Append(nil, n)})
				}
				var planned []<-chan struct{}
				for range 12 {
					planned = append(planned, k.Inject(tolerant{t}, drawFault(dice)))
				}
				members := make([]*life, 3)
				for n := range members {
					members[n] = &life{cl: k.Connect(t), id: fmt.Sprint("tx", n), dice: rand.New(rand.NewPCG(seed, uint64(n+1)))}
				}
				k.RunUntilDrained(t, "g", sharetxntest.RunnerFunc(func(ctx context.Context) error {
					errs := make([]error, len(members))
					var wg sync.WaitGroup
					for n, l := range members {
						wg.Go(func() { errs[n] = l.run(ctx) })
					}
					wg.Wait()
					return errors.Join(errs...)
				}))
				for _, l := range members { // ends what a Close could not
					if err := l.end(t.Context()); err != nil {
						t.Error(err)
					}
				}
				fired := 0
				for _, told := range planned {
					select {
					case <-told:
						fired++
					default:
					}
				}
				if fired < 2 {
					t.Errorf("%d faults fired", fired)
				}
				k.AssertExactlyOnce(t, "g", "out")
			})
		})
	}
}

// tolerant does not mind faults that never fired: they are counted.
type tolerant struct{ testing.TB }

func (tolerant) Errorf(string, ...any) {}

func drawFault(dice *rand.Rand) sharetxntest.Fault {
	codes := map[sharetxntest.Key][]int16{
		sharetxntest.ProduceKey:          nil,
		sharetxntest.FindCoordinatorKey:  nil,
		sharetxntest.MetadataKey:         nil,
		sharetxntest.HeartbeatKey:        {15, 25, 110},
		sharetxntest.ShareFetchKey:       {6, 15, 122, 123},
		sharetxntest.ShareAcknowledgeKey: {6, 121, 122, 123},
		sharetxntest.InitProducerIDKey:   {14, 15, 16, 51},
		sharetxntest.EndTxnKey:           {14, 15, 16, 51, 120},
		sharetxntest.StageKey:            {6, 7, 13, 14, 15, 16, 19, 29, 51, 121},
	}
	keys := []sharetxntest.Key{ // what decides outcomes more often
		sharetxntest.ProduceKey, sharetxntest.FindCoordinatorKey, sharetxntest.MetadataKey, sharetxntest.HeartbeatKey, sharetxntest.ShareFetchKey, sharetxntest.ShareAcknowledgeKey,
		sharetxntest.InitProducerIDKey, sharetxntest.EndTxnKey, sharetxntest.EndTxnKey, sharetxntest.StageKey, sharetxntest.StageKey, sharetxntest.StageKey,
	}
	f := sharetxntest.Fault{Key: keys[dice.IntN(len(keys))], Nth: 1 + dice.IntN(12)}
	node := func() int32 { return dice.Int32N(3) }
	actions := []sharetxntest.Action{
		sharetxntest.LoseRequest(), sharetxntest.LoseAnswer(), sharetxntest.Disconnect(), sharetxntest.DeliverTwice(), sharetxntest.Delay(time.Duration(dice.IntN(30_000)) * time.Millisecond),
		sharetxntest.LeaderMoves("in", node(), node()), sharetxntest.BrokerRestarts(node()), sharetxntest.BrokersPart(0, 1+dice.Int32N(2), time.Duration(1+dice.IntN(20_000))*time.Millisecond),
	}
	for _, code := range codes[f.Key] {
		actions = append(actions, sharetxntest.Answer(code))
	}
	f.Action = actions[dice.IntN(len(actions))]
	return f
}

// life is one member's, over several producers with the same id.
type life struct {
	cl   *sharetxn.Cluster
	id   string
	dice *rand.Rand
}

func (l *life) producer() (*producer.Producer, error) {
	return producer.New(l.cl, l.id, producer.AlternateIDs(1+l.dice.IntN(3)), producer.ResolveTimeout(time.Duration(1+l.dice.IntN(10))*time.Second))
}

func (l *life) run(ctx context.Context) error {
	c, err := shareconsumer.New(l.cl, "g", shareconsumer.Topics("in"), shareconsumer.MaxPollRecords(1+l.dice.IntN(20)), shareconsumer.AcknowledgementMode(shareconsumer.Transactional))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	for ctx.Err() == nil {
		p, err := l.producer()
		if err != nil {
			return err
		}
		for ctx.Err() == nil && l.dice.IntN(15) > 0 {
			if sharetxn.IsFatal(l.work(ctx, c, p)) { // a repeated InitProducerId fences its own producer
				break
			}
		}
		_ = p.Close() // may leave an outcome unknown
	}
	return ctx.Err()
}

// work polls once and commits, or gives back what three transactions could not.
func (l *life) work(ctx context.Context, c *shareconsumer.Consumer, p *producer.Producer) error {
	b, err := c.Poll(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	for try := 0; try < 3 && b.Len() > 0; try++ {
		out, err := p.InTransaction(ctx, b, func(ctx context.Context, tx *producer.Txn) error {
			for _, r := range b.Records() {
				if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: r.Value}); err != nil {
					return err
				}
				r.Accept()
			}
			switch l.dice.IntN(12) {
			case 0:
				return errors.New("on purpose")
			case 1: // long enough, now and then, for the transaction to time out
				select {
				case <-time.After(time.Duration(l.dice.IntN(18_000)) * time.Millisecond):
				case <-ctx.Done():
				}
			}
			return nil
		})
		if out != sharetxn.Aborted || sharetxn.IsFatal(err) {
			return err
		}
	}
	return nil
}

// end takes every id once more.
func (l *life) end(ctx context.Context) error {
	p, err := producer.New(l.cl, l.id)
	if err != nil {
		return err
	}
	return errors.Join(p.InitTransactions(ctx), p.Close())
}
