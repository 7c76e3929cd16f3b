// Command filter takes events that are not JSON out of a share group: it rejects
// them and accepts the rest, each batch as a whole or not at all. It produces
// nothing, so its transactions carry acknowledgements only. It has the loop by
// hand and as a Processor. It needs brokers that have KIP-1289.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acknowledger"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// filter by hand: poll, decide, commit the decisions.
func filter(ctx context.Context, cl *sharetxn.Cluster, topic, group, prefix, instance string) error {
	c, err := shareconsumer.New(cl, group, shareconsumer.Topics(topic), shareconsumer.AcknowledgementMode(shareconsumer.Transactional))
	if err != nil {
		return err
	}
	defer c.Close()
	a, err := acknowledger.New(cl, prefix, acknowledger.Instance(instance))
	if err != nil {
		return err
	}
	defer a.Close()
	for batch, err := range c.Batches(ctx) {
		if err == nil {
			for _, r := range batch.Records() {
				if !json.Valid(r.Value) {
					r.Reject()
				}
			}
			batch.AcceptRest()
			_, err = a.CommitAcknowledgements(ctx, batch)
		}
		if sharetxn.IsFatal(err) {
			return err
		} else if err != nil {
			log.Print(err) // the records come back by themselves
		}
	}
	return nil
}

// processorFilter leaves the loop to a Processor: without outputs a record is only
// acknowledged.
func processorFilter(ctx context.Context, cl *sharetxn.Cluster, topic, group, prefix, instance string) error {
	p, err := processor.New(cl, processor.Config{
		Group: group, Topics: []string{topic}, TransactionalID: prefix, Instance: instance,
		DeadLetter: processor.DeadLetter{Discard: true},
		Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if !json.Valid(in.Value) {
				return nil, processor.Reject(errors.New("no JSON"))
			}
			return nil, nil
		},
	})
	if err != nil {
		return err
	}
	return p.Run(ctx)
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
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	fs := flag.NewFlagSet("filter", flag.ExitOnError)
	seeds := fs.String("bootstrap", "localhost:9092", "brokers, separated by commas")
	topic := fs.String("topic", "events", "topic to filter")
	group := fs.String("group", "filters", "share group; Kafka starts a new one at the end of its topics, unless its config share.auto.offset.reset says earliest")
	prefix := fs.String("id", "filter", "prefix of the transactional id")
	instance := fs.String("instance", host, "tells replicas apart: each needs its own")
	byProcessor := fs.Bool("processor", false, "use a Processor")
	_ = fs.Parse(args) // exits on an error
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(strings.Split(*seeds, ",")...)))
	if err != nil {
		return err
	}
	defer cl.Close()
	if *byProcessor {
		return processorFilter(ctx, cl, *topic, *group, *prefix, *instance)
	}
	return filter(ctx, cl, *topic, *group, *prefix, *instance)
}
