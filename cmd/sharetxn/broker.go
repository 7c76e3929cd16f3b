package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// topicList is a repeatable flag NAME:PARTITIONS.
type topicList map[string]int32

// String implements flag.Value.
func (l topicList) String() string { return "" }

// Set implements flag.Value.
func (l topicList) Set(s string) error {
	name, parts, ok := strings.Cut(s, ":")
	n := int64(1)
	if ok {
		var err error
		if n, err = strconv.ParseInt(parts, 10, 32); err != nil || n < 1 {
			return fmt.Errorf("%q: want NAME:PARTITIONS, with at least 1 partition", s)
		}
	}
	if _, twice := l[name]; twice || name == "" {
		return fmt.Errorf("%q: want NAME:PARTITIONS, each name once", s)
	}
	l[name] = int32(n)
	return nil
}

// runBroker serves until ctx ends.
func runBroker(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := brokerConfig(args, stderr)
	if err != nil {
		return err
	}
	c, err := broker.Start(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	return serveBroker(ctx, c, stdout)
}

// brokerConfig reads the command line.
func brokerConfig(args []string, stderr io.Writer) (broker.Config, error) {
	topics := topicList{}
	fs := flag.NewFlagSet("sharetxn broker", flag.ContinueOnError)
	fs.SetOutput(stderr)
	listen := fs.String("listen", "127.0.0.1:9092", "address of the first broker; further ones take the ports after it, or free ones for port 0")
	n := fs.Int("brokers", 1, "brokers, 1 to 10")
	profile := fs.String("profile", "draft95", "how KIP-1289 is spoken: draft95, or kip93")
	latest := fs.Bool("latest", false, "share groups begin at the end of their topics, as on Kafka; without it at the beginning")
	stock := fs.Bool("stock44", false, "look like a stock Kafka 4.4: no KIP-1289")
	data := fs.String("data", "", "folder in which logs, transactions and share state survive this process, SIGKILL too (not the loss of power: files are not synced); made where it is missing, for one process at a time, and always the same --brokers, --profile and --stock44")
	verbose := fs.Bool("verbose", false, "log to standard error")
	fs.Var(topics, "topic", "topic to create, NAME:PARTITIONS with at least 1; repeatable. One that a client asks for comes into being with 1, where the client allows that, as on Kafka")
	if err := parse(fs, args); err != nil {
		return broker.Config{}, err
	}
	bad := func(format string, a ...any) (broker.Config, error) {
		fmt.Fprintf(stderr, "sharetxn broker: "+format+"\n", a...)
		return broker.Config{}, errUsage
	}
	host, portText, err := net.SplitHostPort(*listen)
	if err != nil {
		return bad("--listen: %v", err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	switch {
	case err != nil:
		return bad("--listen: port %q", portText)
	case *n < 1 || *n > 10:
		return bad("--brokers %d: want 1 to 10", *n)
	case port > 0 && int(port)+*n-1 > math.MaxUint16:
		return bad("--listen: no %d ports from %d on", *n, port)
	case *profile != "draft95" && *profile != "kip93":
		return bad("--profile %q: want draft95 or kip93", *profile)
	case fs.NArg() > 0:
		return bad("unexpected %q", fs.Args())
	}
	cfg := broker.Config{Data: *data, Brokers: *n, Host: host, Topics: topics, Stock44: *stock, Profile: wire.Draft95, OffsetReset: "earliest", AutoCreateTopics: true}
	if *profile == "kip93" {
		cfg.Profile = wire.KIP93
	}
	if *latest {
		cfg.OffsetReset = "latest"
	}
	for i := range *n {
		p := 0
		if port > 0 {
			p = int(port) + i
		}
		cfg.Ports = append(cfg.Ports, p)
	}
	if *verbose {
		cfg.Logger = slog.New(slog.NewTextHandler(stderr, nil))
	}
	return cfg, nil
}

// serveBroker says where the cluster listens, and waits until it or ctx ends.
func serveBroker(ctx context.Context, c *broker.Cluster, stdout io.Writer) error {
	if _, err := fmt.Fprintln(stdout, "listening:", strings.Join(c.Seeds(), ",")); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-c.Done():
		return c.Err()
	}
}
