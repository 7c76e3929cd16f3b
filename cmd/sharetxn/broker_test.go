package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The broker serves any client until it is interrupted.
func TestBroker(t *testing.T) {
	for name, c := range map[string]struct {
		args    []string
		brokers int
		profile string
	}{
		"one":         {brokers: 1, profile: "draft95"},
		"three":       {args: []string{"--brokers", "3"}, brokers: 3, profile: "draft95"},
		"stock Kafka": {args: []string{"--stock44", "--verbose"}, brokers: 1, profile: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			b := begin(ctx, t, append([]string{"broker", "--listen", "127.0.0.1:0", "--topic", "a:2", "--topic", "b"}, c.args...)...)
			_, list, _ := strings.Cut(b.next(t, "listening: "), ": ")
			seeds := strings.Split(list, ",")
			if len(seeds) != c.brokers {
				t.Fatalf("listening on %v", seeds)
			}
			cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(seeds...)))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			caps, err := cl.Capabilities(ctx)
			if err != nil || caps.Staging.String() != c.profile {
				t.Errorf("profile %v, %v", caps.Staging, err)
			}
			k, err := cl.Client()
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			if err := k.ProduceSync(ctx, &kgo.Record{Topic: "b", Value: []byte("x")}).FirstErr(); err != nil {
				t.Error(err)
			}
			asks, err := cl.Client(kgo.AllowAutoTopicCreation())
			if err != nil {
				t.Fatal(err)
			}
			defer asks.Close()
			if err := asks.ProduceSync(ctx, &kgo.Record{Topic: "made", Value: []byte("x")}).FirstErr(); err != nil {
				t.Error("a topic made on request:", err)
			}
			topics, err := kadm.NewClient(k).ListTopics(ctx, "a", "b")
			if err != nil || len(topics["a"].Partitions) != 2 || len(topics["b"].Partitions) != 1 {
				t.Errorf("topics %v, %v", topics, err)
			}
			b.stop(errSignal)
			b.exit(t, exitOK)
			if err := k.Ping(ctx); err == nil {
				t.Error("still served")
			}
		})
	}
}

func TestBrokerPortTaken(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := begin(ctx, t, "broker", "--listen", l.Addr().String())
	b.next(t, "in use")
	b.exit(t, exitWrong)
}
