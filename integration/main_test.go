// Package integration holds the library to stock Apache Kafka: all that does
// not need acknowledgements in transactions, which no released broker has.
package integration

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/integration/target"
	"go.uber.org/goleak"
)

// one is the broker that most tests share; oneErr is why there is none.
var (
	one    *kafka.Cluster
	oneErr error
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sharetxn-kafka-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // the jars may have to be fetched
	defer cancel()
	one, oneErr = target.Start(ctx, dir, 1)
	if oneErr != nil {
		fmt.Fprintln(os.Stderr, "no broker:", oneErr)
		return m.Run()
	}
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, one.Logs())
	}
	fmt.Fprintf(os.Stderr, "ran on real Kafka: %s %s\n", one.Kind, one.Version)
	if err := one.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// testkit.Main would look while the broker's process is still watched.
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// broker is the broker that tests share.
func broker(t testing.TB) *kafka.Cluster {
	t.Helper()
	target.Require(t, oneErr)
	return one
}

// three are brokers of the test's own, to kill.
func three(ctx context.Context, t testing.TB) *kafka.Cluster {
	t.Helper()
	k, err := target.Start(ctx, t.TempDir(), 3)
	target.Require(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(k.Logs())
		}
		if err := k.Stop(); err != nil {
			t.Error(err)
		}
	})
	return k
}
