// Command offers prints what real Kafka this machine has for tests. In CI each
// kind must be there; elsewhere tests of what is missing are skipped.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn/integration/target"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // jars or an image may have to be fetched
	defer cancel()
	missing := false
	for _, o := range target.Offers(ctx) {
		fmt.Println("real Kafka:", o)
		missing = missing || o.Missing != nil
	}
	if tools := target.Tools(); len(tools) > 0 {
		fmt.Println("a JDK is missing, not only Java:", strings.Join(tools, ", "))
		missing = true
	}
	if missing && os.Getenv("CI") == "true" {
		os.Exit(1)
	}
}
