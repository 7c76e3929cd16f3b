package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// gateVar names the environment variable that makes this test binary the
// program under test: a process of its own that can be sent signals.
const gateVar = "SHARETXN_TEST_GATE"

func TestMain(m *testing.M) {
	if gate := os.Getenv(gateVar); gate != "" {
		os.Exit(command(os.Args[1:], asking(gate)))
	}
	testkit.Main(m)
}

// What a test answers a handler that asks.
const (
	accept  = "accept"
	release = "release" // for ten minutes
	die     = "die"     // the process, at once
)

// asking is a handler that asks the test at address what to do with each record
// and waits for the answer.
func asking(address string) processor.Handler {
	return func(ctx context.Context, in *processor.Record) ([]*kgo.Record, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		defer conn.Close()
		fmt.Fprintf(conn, "%s %s %d\n", os.Getenv("POD_NAME"), in.Value, in.DeliveryCount)
		answer, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			return nil, errors.Join(context.Cause(ctx), err)
		}
		switch answer {
		case release + "\n":
			return nil, processor.Release(10 * time.Minute)
		case die + "\n":
			os.Exit(9)
		}
		return shout(ctx, in)
	}
}
