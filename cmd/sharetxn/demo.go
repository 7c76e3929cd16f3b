package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/demo"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
	"github.com/sharetxn/sharetxn/examples/data"
	"github.com/sharetxn/sharetxn/processor"
)

// runDemo reads the command line and runs the demo; dead counts what it may leave
// running when it returns.
func runDemo(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, dead *sync.WaitGroup) error {
	cfg := demo.Config{Stdout: stdout, Stderr: stderr, Dead: dead, Profile: sharetxn.ProfileDraft95}
	fs := flag.NewFlagSet("sharetxn demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintln(stderr, "usage: sharetxn demo [flags] [FILE|-]\n\nFILE is NDJSON, one event a line; - reads standard input; without it the bundled\nearthquakes are used. Exit status 0 only if the audit finds the result right: what\nthe guarantee promises, and nothing lost under any of them.")
		fs.PrintDefaults()
	}
	fs.Uint64Var(&cfg.Seed, "seed", 1, "which faults come when")
	fs.IntVar(&cfg.Members, "members", 3, "members of the share group, 1 to 100")
	fs.IntVar(&cfg.Batch, "batch", 10, "records a transaction at the most, 1 to 10000")
	fs.Var(&cfg.Faults, "faults", "off, light (each kind once; the default) or heavy (each kind three times)")
	fs.Func("guarantee", "staged (default; needs KIP-1289), ledger (exactly once on Kafka 4.2 and later) or ack-after-commit (at least once: outputs\nmay double, which is counted and not wrong); without --bootstrap the embedded cluster then looks like stock Kafka for the last two", func(s string) (err error) {
		cfg.Guarantee, err = processor.ParseGuarantee(s)
		return err
	})
	fs.Func("bootstrap", "HOST:PORT[,...]: run on this cluster, without TLS and SASL, in place of the embedded one; topics, group and transactional ids\nget a prefix of their own, demo-RANDOM-, and are removed at the end (the ids expire)", func(s string) (err error) {
		cfg.Bootstrap, err = addresses(s)
		return err
	})
	fs.BoolVar(&cfg.Keep, "keep", false, "with --bootstrap: leave topics and group there, and print their names")
	fs.BoolVar(&cfg.Compare, "compare", false, "run it once more with ack-after-commit, and show both audits")
	fs.Func("profile", "form of KIP-1289: draft95 (default) or kip93", func(s string) error { return setProfile(&cfg.Profile, s) })
	fs.BoolVar(&cfg.JSON, "json", false, "print one JSON object instead of the table")
	fs.BoolVar(&cfg.Verbose, "verbose", false, "log what library and brokers do to standard error")
	if err := parse(fs, args); err != nil {
		return err
	}
	bad := func(format string, a ...any) error {
		fmt.Fprintf(stderr, "sharetxn demo: "+format+"\n", a...)
		return errUsage
	}
	switch {
	case cfg.Members < 1 || cfg.Members > 100:
		return bad("--members %d: want 1 to 100", cfg.Members)
	case cfg.Batch < 1 || cfg.Batch > 10000:
		return bad("--batch %d: want 1 to 10000", cfg.Batch)
	case cfg.Compare && cfg.Guarantee == processor.AckAfterCommit:
		return bad("--compare with --guarantee=%v: the same twice", cfg.Guarantee)
	case cfg.Keep && len(cfg.Bootstrap) == 0:
		return bad("--keep without --bootstrap: the embedded cluster ends with the demo")
	case cfg.Compare && cfg.Faults == faults.Off:
		return bad("--compare with --faults=off: nothing would be shown")
	case fs.NArg() > 1:
		return bad("one FILE at the most, got %q", fs.Args())
	}
	switch name := fs.Arg(0); name {
	case "":
		cfg.Input, cfg.Bundled = bytes.NewReader(data.Earthquakes), true
	case "-":
		cfg.Input = stdin
	default:
		f, err := os.Open(name)
		if err != nil {
			return bad("%v", err)
		}
		defer f.Close()
		cfg.Input = f
	}
	return demo.Run(ctx, cfg)
}

// addresses reads a list of host:port.
func addresses(list string) (out []string, err error) {
	for a := range strings.SplitSeq(list, ",") {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			return nil, fmt.Errorf("%q: want HOST:PORT[,HOST:PORT...]", list)
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || host == "" {
			return nil, fmt.Errorf("%q: want HOST:PORT[,HOST:PORT...]", list)
		}
		out = append(out, a)
	}
	return out, nil
}

func setProfile(to *sharetxn.Profile, name string) error {
	for _, p := range []sharetxn.Profile{sharetxn.ProfileDraft95, sharetxn.ProfileKIP93} {
		if p.String() == name {
			*to = p
			return nil
		}
	}
	return fmt.Errorf("%q: want draft95 or kip93", name)
}
