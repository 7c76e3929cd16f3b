// Command bench holds the library against the nearest thing without it, and
// prints one table of rates and ratios. Its contests:
//
//   - transactions of one record, on stock Kafka: a producer against kgo's loop;
//   - consume: records read and acknowledged on stock Kafka, our share consumer
//     against kgo's and Java's;
//   - start: how soon each of them has its first record;
//   - ctp: records consumed, copied in transactions and acknowledged on stock Kafka,
//     a Processor by the ledger against one that acknowledges after the commit, and
//     against kgo's loop;
//   - copies: records consumed, copied and acknowledged, on an embedded broker: a
//     Processor against plain acknowledgements, which promise less.
//
// It measures and judges nothing. All but the last need Java and Maven; without
// them it says so and only the last is done. docs/benchmarks.md tells how to
// read the table.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/sharetxn/sharetxn/bench/contender"
)

func main() {
	if err := program(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func program() error {
	if contender.Serving() {
		return contender.Serve()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	m, err := parse(os.Args[1:])
	if err != nil {
		return err
	}
	return m.take(ctx, os.Stdout, os.Stderr)
}
