// Command sharetxn shows the library at work, serves its embedded cluster, and
// looks after the commit ledgers of share groups:
//
//	sharetxn demo [flags] [FILE|-]
//	sharetxn broker --listen 127.0.0.1:9092 [flags]
//	sharetxn ledger COMMAND --bootstrap HOST:PORT --group GROUP [flags]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Exit statuses.
const (
	exitOK          = 0
	exitWrong       = 1 // the audit failed, or the command could not be carried out
	exitUsage       = 2
	exitInterrupted = 130 // as shells have it
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	var left sync.WaitGroup      // a program that ends takes it along
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, &left))
}

// errUsage says that the command line cannot be read; what is wrong was
// printed.
var errUsage = errors.New("usage")

// run carries out a command line and gives its exit status; left counts what it
// may leave running.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, left *sync.WaitGroup) int {
	if len(args) == 0 {
		args = []string{"help"}
	}
	var err error
	switch args[0] {
	case "demo":
		err = runDemo(ctx, args[1:], stdin, stdout, stderr, left)
	case "broker":
		err = runBroker(ctx, args[1:], stdout, stderr)
	case "ledger":
		err = runLedger(ctx, args[1:], stdout, stderr)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, help)
	default:
		fmt.Fprintf(stderr, "sharetxn: unknown command %q\n%s", args[0], help)
		err = errUsage
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.Is(err, errUsage):
		return exitUsage
	case ctx.Err() != nil:
		fmt.Fprintf(stderr, "sharetxn: stopped before the end: %v\n", context.Cause(ctx))
		return exitInterrupted
	}
	fmt.Fprintln(stderr, "sharetxn:", err)
	return exitWrong
}

// parse reads a command's flags; flag itself has printed what is wrong.
func parse(fs *flag.FlagSet, args []string) error {
	err := fs.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return errUsage
	}
	return err
}

const help = `sharetxn: exactly-once consume-transform-produce over Kafka share groups

  sharetxn demo [flags] [FILE|-]   real records through a share group and transactions on an
                                   embedded cluster or a real one, then an audit; default:
                                   bundled events
  sharetxn broker [flags]          serve the embedded cluster until interrupted
  sharetxn ledger COMMAND [flags]  create, check, reset, ... the commit ledger of a share group

Each command has -h. Exit status: 0 done and right, 1 wrong or not possible, 2 usage, 130 demo interrupted
before its end. An interrupt is how broker ends, with 0.
`
