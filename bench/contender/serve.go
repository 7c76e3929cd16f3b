package contender

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"

	"github.com/sharetxn/sharetxn/processor"
)

// What makes a process of this program a contender.
const (
	envName    = "SHARETXN_BENCH_CONTENDER" // which
	envProfile = "SHARETXN_BENCH_PROFILE"   // file for its CPU profile; empty: none
)

// works are the contenders in Go: first those that only consume, then those that
// copy in transactions.
var works = map[string]func(context.Context, Job, *watch) error{
	"ours":  ours,
	"kgo":   kgoShare,
	"floor": floor,

	Ledger:         withProcessor(processor.Ledger),
	AckAfterCommit: withProcessor(processor.AckAfterCommit),
	KgoOne:         withKgo(1),
	KgoTwo:         withKgo(2),
}

// Contenders for jobs with an Output.
const (
	Ledger         = "ledger"
	AckAfterCommit = "ack-after-commit"
	KgoOne         = "kgo-one" // transactional id, as most write it
	KgoTwo         = "kgo-two" // in turn, which hides a broker's wait after a commit
)

// Serving tells whether this process was started as a contender; its main
// function must then call Serve and nothing else.
func Serving() bool { return os.Getenv(envName) != "" }

// Serve does the jobs that come on standard input until it ends.
func Serve() error {
	work, ok := works[os.Getenv(envName)]
	if !ok {
		return fmt.Errorf("no contender named %q", os.Getenv(envName))
	}
	if name := os.Getenv(envProfile); name != "" {
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return serve(context.Background(), os.Stdin, os.Stdout, work)
}

// serve ends a job early when the input ends: nobody waits for it any more.
func serve(ctx context.Context, in io.Reader, out io.Writer, work func(context.Context, Job, *watch) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan []byte)
	go func() {
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			select {
			case jobs <- append([]byte(nil), lines.Bytes()...):
			case <-ctx.Done():
				return
			}
		}
		cancel(errors.Join(io.EOF, lines.Err()))
	}()
	answer := json.NewEncoder(out)
	for {
		select {
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, io.EOF) {
				return err
			}
			return nil
		case line := <-jobs:
			var j Job
			if err := json.Unmarshal(line, &j); err != nil {
				return err
			}
			w := newWatch(func() { _ = answer.Encode(message{First: true}) }) // the report fails too if that does
			m := message{Report: &w.report}
			if err := work(ctx, j, w); err != nil {
				m = message{Error: err.Error()}
			}
			if err := answer.Encode(m); err != nil {
				return err
			}
		}
	}
}
