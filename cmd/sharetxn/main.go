// Command sharetxn shows the library at work and serves its embedded cluster:
//
//	sharetxn demo [flags] [FILE|-]
//	sharetxn broker --listen 127.0.0.1:9092 [flags]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/demo"
)

// exit codes
const (
	exitOK    = 0
	exitWrong = 1 // the audit failed, or the run could not be done
	exitUsage = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// errUsage says that the command line cannot be read; what is wrong was
// printed.
var errUsage = errors.New("usage")

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		args = []string{"help"}
	}
	var err error
	switch args[0] {
	case "demo":
		err = runDemo(ctx, args[1:], stdin, stdout, stderr)
	case "broker":
		err = runBroker(ctx, args[1:], stdout, stderr)
	case "help", "-h", "--help":
		fmt.Fprint(stdout, help)
		return exitOK
	default:
		fmt.Fprintf(stderr, "sharetxn: unknown command %q\n%s", args[0], help)
		return exitUsage
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, demo.ErrWrong):
		fmt.Fprintln(stderr, "sharetxn:", err)
		return exitWrong
	}
	fmt.Fprintln(stderr, "sharetxn:", err)
	return exitWrong
}

const help = `sharetxn: exactly-once consume-transform-produce over Kafka share groups

  sharetxn demo [flags] [FILE|-]   real records through a share group and transactions on an
                                   embedded cluster, then an audit; default: bundled events
  sharetxn broker [flags]          serve the embedded cluster until interrupted

Each command has -h.
`
