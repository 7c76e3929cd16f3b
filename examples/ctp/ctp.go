// Command ctp consumes from a share group, transforms and produces, each record
// exactly once, on brokers that have KIP-1289. It has the loop in two forms.
package main

import (
	"bytes"
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// loop is the usual form: a closure per batch.
func loop(ctx context.Context, cl *sharetxn.Cluster, in, out, group, id string) error {
	c, err := shareconsumer.New(cl, group, shareconsumer.Topics(in), shareconsumer.AcknowledgementMode(shareconsumer.Transactional))
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := producer.New(cl, id)
	if err != nil {
		return err
	}
	defer p.Close()
	for batch, err := range c.Batches(ctx) {
		if err == nil {
			_, err = p.InTransaction(ctx, batch, func(ctx context.Context, t *producer.Txn) error {
				for _, r := range batch.Records() {
					if err := t.Produce(ctx, &kgo.Record{Topic: out, Key: r.Key, Value: bytes.ToUpper(r.Value)}); err != nil {
						return err
					}
					r.Accept()
				}
				return nil
			})
		}
		if sharetxn.IsFatal(err) {
			return err
		} else if err != nil {
			log.Print(err) // the records come back by themselves
		}
	}
	return nil
}

// kipLoop is the KIP's own form: an explicit handle, and acknowledgements sent
// to the transaction by hand.
func kipLoop(ctx context.Context, cl *sharetxn.Cluster, in, out, group, id string) error {
	c, err := shareconsumer.New(cl, group, shareconsumer.Topics(in), shareconsumer.AcknowledgementMode(shareconsumer.Transactional))
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := producer.New(cl, id)
	if err != nil {
		return err
	}
	defer p.Close()
	for batch, err := range c.Batches(ctx) {
		if err == nil {
			err = once(ctx, c, p, batch, out)
		}
		if sharetxn.IsFatal(err) {
			return err
		} else if err != nil {
			log.Print(err)
		}
	}
	return nil
}

// once carries one batch through a transaction.
func once(ctx context.Context, c *shareconsumer.Consumer, p *producer.Producer, batch *shareconsumer.Batch, out string) error {
	txn, err := p.Begin(ctx)
	if err != nil {
		return err
	}
	defer txn.Abort(ctx) // does nothing after Commit
	for _, r := range batch.Records() {
		if err := txn.Produce(ctx, &kgo.Record{Topic: out, Key: r.Key, Value: bytes.ToUpper(r.Value)}); err != nil {
			return err
		}
	}
	set, err := acks.FromRecords(batch.Records(), acks.Accept)
	if err != nil {
		return err
	}
	if err := txn.SendShareAcknowledgementsToTransaction(ctx, set.Map(), c.ShareGroupMetadata()); err != nil {
		return err
	}
	_, err = txn.Commit(ctx)
	return err
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
	fs := flag.NewFlagSet("ctp", flag.ExitOnError)
	seeds := fs.String("bootstrap", "localhost:9092", "brokers, separated by commas")
	in := fs.String("in", "source", "topic to consume")
	out := fs.String("out", "destination", "topic to produce to")
	group := fs.String("group", "enrichers", "share group; Kafka starts a new one at the end of its topics, unless its config share.auto.offset.reset says earliest")
	id := fs.String("id", "enricher-0", "transactional id; each process needs its own")
	kip := fs.Bool("kip", false, "use the KIP's own form")
	_ = fs.Parse(args) // exits on an error
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(strings.Split(*seeds, ",")...)))
	if err != nil {
		return err
	}
	defer cl.Close()
	if *kip {
		return kipLoop(ctx, cl, *in, *out, *group, *id)
	}
	return loop(ctx, cl, *in, *out, *group, *id)
}
