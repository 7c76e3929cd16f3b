// Command jars fetches the jars of a Kafka version, unless they are there, and
// prints their folder. integration/image/build uses it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/sharetxn/sharetxn/integration/kafka"
)

func main() {
	version := kafka.Version()
	if len(os.Args) > 1 {
		version = os.Args[1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	run, err := kafka.Installed(ctx, version)
	if err != nil {
		fmt.Fprintln(os.Stderr, "jars:", err)
		os.Exit(1)
	}
	fmt.Println(run.Jars)
}
