// Command processor is a service on package processor: it condenses earthquake
// reports, sets off alerts for strong ones, and puts what it cannot read aside.
// It needs brokers that have KIP-1289 or, with -guarantee=ledger, Kafka 4.2 and the
// group's ledger topic.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// serve runs the service until ctx ends; then it finishes what is in hand.
func serve(ctx context.Context, cl *sharetxn.Cluster, guarantee processor.Guarantee, group, instance string, members int) error {
	p, err := processor.New(cl, processor.Config{
		Guarantee:  guarantee, // Staged, or on stock Kafka Ledger
		Group:      group,
		Topics:     []string{"quakes"},
		Handler:    handle,
		DeadLetter: processor.DeadLetter{Topic: "quakes.dead"},
		Instance:   instance, // each replica needs its own
		Members:    members,
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
	fs := flag.NewFlagSet("processor", flag.ExitOnError)
	seeds := fs.String("bootstrap", "localhost:9092", "brokers, separated by commas")
	group := fs.String("group", "quake-condensers", "share group; it is set to begin at the start of its topics and to read what was committed only")
	instance := fs.String("instance", "", "tells replicas apart: each needs its own; empty means the host name")
	guarantee := processor.Staged
	fs.Func("guarantee", "staged (default), ledger or ack-after-commit", func(s string) (err error) {
		guarantee, err = processor.ParseGuarantee(s)
		return err
	})
	members := fs.Int("members", 1, "group members of this process, each with transactions of its own")
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
	return serve(ctx, cl, guarantee, *group, *instance, *members)
}
