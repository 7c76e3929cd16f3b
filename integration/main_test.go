// Package integration holds the library to stock Apache Kafka: all that does
// not need acknowledgements in transactions, which no released broker has.
package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
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
	one, oneErr = kafka.Start(ctx, dir, 1)
	if oneErr != nil {
		fmt.Fprintln(os.Stderr, "no broker:", oneErr)
		return m.Run()
	}
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, one.Logs())
	}
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

// broker is the broker that tests share. Where none can be had the test is
// skipped, except in CI, where that is a failure.
func broker(t testing.TB) *kafka.Cluster {
	t.Helper()
	require(t, oneErr)
	return one
}

func require(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, kafka.ErrUnavailable) && os.Getenv("CI") != "true" {
		t.Skip("needs stock Kafka, that is Java and Maven: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
