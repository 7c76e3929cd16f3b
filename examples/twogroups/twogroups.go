// Command twogroups matches two queues, rides that are asked for and drivers who
// are free: each ride gets one driver and each driver one ride, whatever fails.
// The queues are share groups of their own; a match and the acknowledgements of
// both sides are one transaction. It needs brokers that have KIP-1289.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// patience is how long one queue is waited for before the other is looked at
// again. What is in hand stays locked for twice as long.
const patience = 5 * time.Second

// attempts are made of a match before its records are given back.
const attempts = 3

// queue is one side: a member of its share group, and what it holds.
type queue struct {
	*shareconsumer.Consumer
	batch *shareconsumer.Batch
}

func newQueue(cl *sharetxn.Cluster, topic, group string) (*queue, error) {
	c, err := shareconsumer.New(cl, group, shareconsumer.Topics(topic), shareconsumer.AcknowledgementMode(shareconsumer.Transactional))
	return &queue{Consumer: c}, err
}

// fill polls where nothing is in hand, and keeps the locks of what is. They run
// while the other side is waited for, which may be longer than they last;
// handing the records back instead would use up their deliveries.
func (q *queue) fill(ctx context.Context) (ready bool, err error) {
	if q.batch == nil || q.batch.Len() == 0 {
		wait, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		b, err := q.Poll(wait)
		if errors.Is(err, context.DeadlineExceeded) {
			return false, nil
		} else if err != nil {
			return false, err
		}
		q.batch = b
	}
	q.batch.KeepLocked(2 * patience)
	return true, nil
}

// match pairs what is in hand of both, in one transaction. What is left over of
// the longer side waits for the next one.
func match(ctx context.Context, rides, drivers *queue, p *producer.Producer, topic string) error {
	for _, q := range []*queue{rides, drivers} {
		if ready, err := q.fill(ctx); err != nil || !ready {
			return err
		}
	}
	rs, ds := rides.batch.Records(), drivers.batch.Records()
	n := min(len(rs), len(ds))
	rs, ds = rs[:n], ds[:n]
	asked, err := rides.batch.Split(rs...)
	if err != nil {
		return err
	}
	defer asked.Close() // gives back what is left
	free, err := drivers.batch.Split(ds...)
	if err != nil {
		return err
	}
	defer free.Close()
	for attempt := 1; ; attempt++ {
		out, err := p.InTransaction(ctx, producer.Join(asked, free), func(ctx context.Context, t *producer.Txn) error {
			for i, ride := range rs {
				if err := t.Produce(ctx, &kgo.Record{Topic: topic, Key: ride.Value, Value: ds[i].Value}); err != nil {
					return err
				}
			}
			asked.AcceptRest()
			free.AcceptRest()
			return nil
		})
		// After an abort records that were not staged are still in hand: run them
		// again at no cost in deliveries, if the pairs are whole.
		whole := out == sharetxn.Aborted && asked.Len() == n && free.Len() == n
		if err == nil || !whole || sharetxn.IsFatal(err) || attempt == attempts {
			return err
		}
		log.Print(err)
	}
}

func dispatch(ctx context.Context, rides, drivers *queue, p *producer.Producer, topic string) error {
	for ctx.Err() == nil {
		err := match(ctx, rides, drivers, p, topic)
		if sharetxn.IsFatal(err) {
			return err
		} else if err != nil && ctx.Err() == nil {
			log.Print(err) // the records come back by themselves
		}
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("twogroups", flag.ExitOnError)
	seeds := fs.String("bootstrap", "localhost:9092", "brokers, separated by commas")
	rideTopic := fs.String("rides", "rides", "topic of the rides asked for, also its share group")
	driverTopic := fs.String("drivers", "drivers", "topic of the drivers who are free, also its share group")
	out := fs.String("out", "matches", "topic of the matches")
	id := fs.String("id", "dispatch-0", "transactional id; each process needs its own")
	_ = fs.Parse(args) // exits on an error
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(strings.Split(*seeds, ",")...)))
	if err != nil {
		return err
	}
	defer cl.Close()
	rides, err := newQueue(cl, *rideTopic, *rideTopic)
	if err != nil {
		return fmt.Errorf("rides: %w", err)
	}
	defer rides.Close()
	drivers, err := newQueue(cl, *driverTopic, *driverTopic)
	if err != nil {
		return fmt.Errorf("drivers: %w", err)
	}
	defer drivers.Close()
	p, err := producer.New(cl, *id)
	if err != nil {
		return err
	}
	defer p.Close()
	return dispatch(ctx, rides, drivers, p, *out)
}
