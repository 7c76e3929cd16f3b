// Package foreign lets clients that are not ours do ordinary work on
// `sharetxn broker`: Java's clients, Kafka's command line tools, and kgo. Each
// test runs on stock Kafka too, and both must answer the same.
package foreign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/integration/target"
	"go.uber.org/goleak"
)

// What the tests share, made once; err is why there is none.
var shared struct {
	java     *java
	clusters []*cluster
	err      error
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "sharetxn-foreign-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // the jars may have to be fetched
	defer cancel()
	stop, err := begin(ctx, dir)
	if shared.err = err; err != nil {
		fmt.Fprintln(os.Stderr, "no foreign clients:", err)
	}
	code = m.Run()
	if code != 0 && shared.java != nil {
		fmt.Fprintln(os.Stderr, shared.java.log())
	}
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// testkit.Main would look while the processes are still watched.
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// begin starts the JVM with the clients and the brokers that they talk to.
func begin(ctx context.Context, dir string) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, fn := range stops {
			errs = append(errs, fn())
		}
		return errors.Join(errs...)
	}
	var stock *kafka.Cluster
	started := make(chan error, 1)
	go func() { // beside what else has to start
		var err error
		stock, err = target.Start(ctx, dir, 1)
		started <- err
	}()
	binary, err := build(ctx, dir)
	if err == nil {
		shared.java, err = startJava(ctx, dir)
	}
	if err == nil {
		stops = append(stops, shared.java.stop)
	}
	if noStock := <-started; err == nil {
		err = noStock
	}
	if stock != nil {
		stops = append(stops, stock.Stop)
	}
	if err != nil {
		return stop, err
	}
	shared.clusters = append(shared.clusters, &cluster{name: "stock Kafka", seeds: stock.Seeds(), brokers: stock.Brokers, real: true})
	for _, e := range []struct {
		name    string
		args    []string
		staging bool
	}{
		{"one broker", nil, true},
		{"one broker like stock 4.4", []string{"--stock44"}, false},
		{"three brokers", []string{"--brokers", "3"}, true},
	} {
		b, err := startBroker(ctx, binary, e.args...)
		if err != nil {
			return stop, fmt.Errorf("%s: %w", e.name, err)
		}
		stops = append(stops, b.stop)
		shared.clusters = append(shared.clusters, &cluster{name: e.name, seeds: b.seeds, brokers: len(b.seeds), staging: e.staging})
	}
	return stop, nil
}
