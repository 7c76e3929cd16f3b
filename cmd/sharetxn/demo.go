package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/demo"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
	"github.com/sharetxn/sharetxn/examples/data"
)

// runDemo reads the command line and runs the demo; dead counts what it may leave
// running when it returns.
func runDemo(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, dead *sync.WaitGroup) error {
	cfg := demo.Config{Stdout: stdout, Stderr: stderr, Dead: dead, Profile: sharetxn.ProfileDraft95}
	fs := flag.NewFlagSet("sharetxn demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintln(stderr, "usage: sharetxn demo [flags] [FILE|-]\n\nFILE is NDJSON, one event a line; - reads standard input; without it the bundled\nearthquakes are used. Exit status 0 only if the audit finds the result right.")
		fs.PrintDefaults()
	}
	fs.Uint64Var(&cfg.Seed, "seed", 1, "which faults come when")
	fs.IntVar(&cfg.Members, "members", 3, "members of the share group, 1 to 100")
	fs.IntVar(&cfg.Batch, "batch", 10, "records a transaction at the most, 1 to 10000")
	fs.Var(&cfg.Faults, "faults", "off, light (each kind once; the default) or heavy (each kind three times)")
	fs.BoolVar(&cfg.Compare, "compare", false, "run it once more with commit-then-ack in place of staging, and show both audits")
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

func setProfile(to *sharetxn.Profile, name string) error {
	for _, p := range []sharetxn.Profile{sharetxn.ProfileDraft95, sharetxn.ProfileKIP93} {
		if p.String() == name {
			*to = p
			return nil
		}
	}
	return fmt.Errorf("%q: want draft95 or kip93", name)
}
