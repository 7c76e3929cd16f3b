package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/twmb/franz-go/pkg/kgo"
)

// task is one ledger command on its way: what its flags say, and where it prints.
type task struct {
	name      string
	flags     *flag.FlagSet
	bootstrap string
	group     string
	topics    []string
	json      bool
	timeout   time.Duration

	stdout, stderr io.Writer
}

// ledgerCommand is a command of `sharetxn ledger`.
type ledgerCommand struct {
	name, does string
	about      string        // what else -h says
	timeout    time.Duration // default of --timeout
	topics     bool          // it needs --topics
	// prepare adds flags of its own and gives what to do after parsing.
	prepare func(*task) func(ctx context.Context, cl *sharetxn.Cluster) error
}

var ledgerCommands = []ledgerCommand{
	{"create", "make the ledger topic, or widen it, and put generation 1 in force", "Safe to repeat, and beside running processors. A group's first ledger needs it without members.", time.Minute, true, prepareCreate},
	{"status", "what the ledger holds", "", 2 * time.Minute, false, prepareStatus},
	{"check", "what stands against exactly-once: brokers, topic, group", "Exit status 1 if any of it is fatal; advice alone is 0.", 2 * time.Minute, true, prepareCheck},
	{"truncate", "delete what decides nothing any more", "Processors do so by themselves.", 2 * time.Minute, false, prepareTruncate},
	{"reset", "set the group's offsets, with a new generation of the ledger", "The group must have no members. If it fails half-way, run it again: processors do not start before it has ended.", 5 * time.Minute, false, prepareReset},
	{"move", "put the group under another guarantee", "The group must have no members. From ledger, what is done and not acknowledged is acknowledged first: stop the\nproducers and let the group do all it has, and it costs no record a delivery. If it fails half-way, run it again:\nprocessors do not start before it has ended.", 5 * time.Minute, false, prepareMove},
}

// runLedger finds the command and runs it.
func runLedger(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		args = []string{"help"}
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, ledgerHelp())
		return nil
	}
	for _, c := range ledgerCommands {
		if c.name == args[0] {
			return c.run(ctx, args[1:], stdout, stderr)
		}
	}
	fmt.Fprintf(stderr, "sharetxn ledger: unknown command %q\n%s", args[0], ledgerHelp())
	return errUsage
}

func ledgerHelp() string {
	var b strings.Builder
	b.WriteString("usage: sharetxn ledger COMMAND --bootstrap HOST:PORT[,...] --group GROUP [flags]\n\n")
	for _, c := range ledgerCommands {
		fmt.Fprintf(&b, "  %-9s %s\n", c.name, c.does)
	}
	b.WriteString("\nEach has -h and --json. Exit status: 0 done, 1 not possible or something is wrong, 2 usage.\n")
	return b.String()
}

func (c ledgerCommand) run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	t := &task{name: "sharetxn ledger " + c.name, stdout: stdout, stderr: stderr}
	t.flags = flag.NewFlagSet(t.name, flag.ContinueOnError)
	t.flags.SetOutput(stderr)
	t.flags.Usage = func() {
		fmt.Fprintf(stderr, "usage: %s --bootstrap HOST:PORT[,...] --group GROUP [flags]\n\n%s\n", t.name, strings.ToUpper(c.does[:1])+c.does[1:]+".")
		if c.about != "" {
			fmt.Fprintln(stderr, c.about)
		}
		t.flags.PrintDefaults()
	}
	t.flags.StringVar(&t.bootstrap, "bootstrap", "", "brokers to ask first, HOST:PORT[,HOST:PORT...]; required")
	t.flags.StringVar(&t.group, "group", "", "the share group; required")
	t.flags.BoolVar(&t.json, "json", false, "print one JSON object")
	t.flags.DurationVar(&t.timeout, "timeout", c.timeout, "give up after so long")
	if c.topics {
		t.flags.Func("topics", "the topics that the group consumes, NAME[,NAME...]; required", func(s string) error {
			t.topics = strings.Split(s, ",")
			return nil
		})
	}
	do := c.prepare(t)
	if err := parse(t.flags, args); err != nil {
		return err
	}
	switch {
	case t.bootstrap == "":
		return t.bad("--bootstrap is missing")
	case t.group == "":
		return t.bad("--group is missing")
	case c.topics && len(t.topics) == 0:
		return t.bad("--topics is missing")
	case t.timeout <= 0:
		return t.bad("--timeout %v: want more than 0", t.timeout)
	case t.flags.NArg() > 0:
		return t.bad("unexpected %q", t.flags.Args())
	}
	cl, err := sharetxn.Connect(
		sharetxn.Kafka(kgo.SeedBrokers(strings.Split(t.bootstrap, ",")...)),
		sharetxn.Logger(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	if err != nil {
		return err
	}
	defer cl.Close()
	bounded, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	err = do(bounded, cl)
	switch {
	case err == nil, errors.Is(err, errUsage):
		return err
	case sharetxn.ClassOf(err) == sharetxn.ClassUsage:
		return t.bad("%v", t.told(err))
	}
	return t.told(err)
}

// bad says what is wrong with the command line.
func (t *task) bad(format string, args ...any) error {
	fmt.Fprintf(t.stderr, t.name+": "+format+"\n", args...)
	return errUsage
}

// addresses puts the brokers' addresses into a command that the library names.
func (t *task) addresses(command string) string {
	return strings.ReplaceAll(command, "$BOOTSTRAP", t.bootstrap)
}

// told is an error whose commands can be copied.
func (t *task) told(err error) error {
	return toldError{strings.TrimPrefix(t.addresses(err.Error()), "sharetxn: "), err}
}

type toldError struct {
	text string
	error
}

func (e toldError) Error() string { return e.text }

func (e toldError) Unwrap() error { return e.error }

func prepareCreate(t *task) func(context.Context, *sharetxn.Cluster) error {
	replicas := t.flags.Int("replication-factor", 0, "replicas of a topic that is made; default 3, or as many as there are brokers")
	return func(ctx context.Context, cl *sharetxn.Cluster) error {
		var opts []ledger.EnsureOpt
		if *replicas != 0 {
			if *replicas < 1 || *replicas > 1000 {
				return t.bad("--replication-factor %d: want 1 to 1000", *replicas)
			}
			opts = append(opts, ledger.ReplicationFactor(int16(*replicas)))
		}
		if err := ledger.Ensure(ctx, cl, t.group, t.topics, opts...); err != nil {
			return err
		}
		return t.print(created{t.group, ledger.TopicName(t.group)})
	}
}

func prepareStatus(t *task) func(context.Context, *sharetxn.Cluster) error {
	return func(ctx context.Context, cl *sharetxn.Cluster) error {
		s, err := ledger.ReadStatus(ctx, cl, t.group)
		if err != nil {
			return err
		}
		return t.print(statusOf(t, s))
	}
}

// errFatal: Check found what a processor refuses to start with; it was printed.
var errFatal = errors.New("exactly-once does not hold here: see what is fatal")

func prepareCheck(t *task) func(context.Context, *sharetxn.Cluster) error {
	timeout := t.flags.Duration("transaction-timeout", 0, "the processors' transaction timeout (default what they take for the group's lock)")
	committed := t.flags.Bool("read-committed", false, "a group that reads uncommitted is fatal: its inputs are written in transactions")
	return func(ctx context.Context, cl *sharetxn.Cluster) error {
		var opts []ledger.CheckOpt
		if *timeout != 0 {
			opts = append(opts, ledger.TransactionTimeout(*timeout))
		}
		if *committed {
			opts = append(opts, ledger.RequireReadCommitted())
		}
		problems, err := ledger.Check(ctx, cl, t.group, t.topics, opts...)
		if err != nil {
			return err
		}
		found := checkedOf(t, problems)
		if err := t.print(found); err != nil {
			return err
		}
		if found.Fatal > 0 {
			return errFatal
		}
		return nil
	}
}

func prepareTruncate(t *task) func(context.Context, *sharetxn.Cluster) error {
	return func(ctx context.Context, cl *sharetxn.Cluster) error {
		deleted, err := ledger.Truncate(ctx, cl, t.group)
		if err != nil {
			return err
		}
		return t.print(truncated{t.group, deleted})
	}
}

func prepareReset(t *task) func(context.Context, *sharetxn.Cluster) error {
	to := t.flags.String("to", "", "earliest, latest, or a time such as 2026-03-29T08:00:00Z; required")
	return func(ctx context.Context, cl *sharetxn.Cluster) error {
		at, err := resetTime(*to, time.Now())
		if err != nil {
			return t.bad("--to %q: %v", *to, err)
		}
		if err := ledger.Reset(ctx, cl, t.group, at); err != nil {
			return err
		}
		return t.print(reset{t.group, *to})
	}
}

// resetTime reads --to as ledger.Reset has it.
func resetTime(to string, now time.Time) (time.Time, error) {
	switch to {
	case "earliest":
		return time.Time{}, nil
	case "latest":
		return now.AddDate(100, 0, 0), nil
	}
	at, err := time.Parse(time.RFC3339, to)
	switch {
	case err != nil:
		return at, errors.New("want earliest, latest, or a time such as 2026-03-29T08:00:00Z")
	case at.After(now):
		return at, errors.New("it has not come yet; for the end there is latest")
	}
	return at, nil
}

func prepareMove(t *task) func(context.Context, *sharetxn.Cluster) error {
	to := t.flags.String("to", "", "ledger, staged or ack-after-commit; required")
	return func(ctx context.Context, cl *sharetxn.Cluster) error {
		done, err := ledger.Move(ctx, cl, t.group, *to)
		if err != nil {
			return err
		}
		return t.print(movedOf(t, done))
	}
}
