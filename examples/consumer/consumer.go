// Command consumer is a plain share consumer: it prints strong earthquakes and
// acknowledges each report by itself, at least once, on any broker that has share
// groups.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consume works until ctx ends; it finishes the batch in hand, and what was
// fetched and not begun goes back to the group.
func consume(ctx context.Context, cl *sharetxn.Cluster, group, topic string, handle func(*shareconsumer.Record) error) error {
	c, err := shareconsumer.New(cl, group, shareconsumer.Topics(topic), shareconsumer.OnAcknowledged(func(a shareconsumer.AckResult) {
		if a.Err != nil { // these records come again, here or elsewhere
			log.Printf("not acknowledged: %s-%d %v: %v", a.Partition.Topic, a.Partition.Partition, a.Batches, a.Err)
		}
	}))
	if err != nil {
		return err
	}
	defer c.Close()
	for batch, err := range c.Batches(ctx) {
		if err == nil {
			for _, r := range batch.Records() {
				switch err := handle(r); {
				case err == nil:
					r.Accept()
				case errors.Is(err, errUnreadable):
					r.Reject() // for good
				default:
					r.Release() // for another delivery; after the fifth the broker gives up
				}
			}
			err = batch.CommitAsync() // what comes of it OnAcknowledged tells
		}
		if sharetxn.IsFatal(err) {
			return err
		} else if err != nil {
			log.Print(err) // what it names comes again
		}
	}
	return c.Close() // sends what CommitAsync has queued
}

// errUnreadable is of what another delivery would not make better.
var errUnreadable = errors.New("not an earthquake report")

// printer writes a line for each earthquake from a magnitude on. A write that fails is
// worth another delivery.
func printer(to io.Writer, from float64) func(*shareconsumer.Record) error {
	return func(r *shareconsumer.Record) error {
		var report struct {
			Properties struct {
				Mag   float64
				Place string
			}
		}
		if err := json.Unmarshal(r.Value, &report); err != nil {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		if report.Properties.Mag < from {
			return nil
		}
		_, err := fmt.Fprintf(to, "%.1f %s\n", report.Properties.Mag, report.Properties.Place)
		return err
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet("consumer", flag.ExitOnError)
	seeds := fs.String("bootstrap", "localhost:9092", "brokers, separated by commas")
	topic := fs.String("topic", "quakes", "topic to consume")
	group := fs.String("group", "quake-printers", "share group; it is set to begin at the start of the topic and to read what was committed only")
	from := fs.Float64("from", 5, "least magnitude to print")
	_ = fs.Parse(args) // exits on an error
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(strings.Split(*seeds, ",")...)))
	if err != nil {
		return err
	}
	defer cl.Close()
	// Configs of the group, not of this process; where an operator sets them, leave
	// this out.
	if err := groupconfig.Set(ctx, cl, *group, groupconfig.IsolationLevel(groupconfig.ReadCommitted), groupconfig.AutoOffsetReset("earliest")); err != nil {
		return err
	}
	return consume(ctx, cl, *group, *topic, printer(stdout, *from))
}
