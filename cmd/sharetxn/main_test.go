package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"go.uber.org/goleak"
)

// left is what killed processes leave running; it ends by itself, and all of it is
// waited for once, at the end.
var left sync.WaitGroup

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	if text := os.Getenv(asDoomed); text != "" {
		os.Exit(doomed(text, os.Args[2:]))
	}
	if text := os.Getenv(asMember); text != "" {
		os.Exit(member(text))
	}
	code := m.Run()
	left.Wait()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// asProgram makes the test's binary the program itself, for tests that kill it.
const asProgram = "SHARETXN_TEST_AS_PROGRAM"

// command is a command line that runs beside the test.
type command struct {
	stdin  *io.PipeWriter
	lines  chan string // of stdout and stderr
	stdout *bytes.Buffer
	stop   context.CancelCauseFunc
	code   chan int
}

var errSignal = errors.New("interrupt signal received")

func begin(ctx context.Context, t *testing.T, args ...string) *command {
	t.Helper()
	ctx, stop := context.WithCancelCause(ctx)
	in, stdin := io.Pipe()
	told, tell := io.Pipe()
	c := &command{stdin: stdin, lines: make(chan string, 1000), stdout: &bytes.Buffer{}, stop: stop, code: make(chan int, 1)}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(c.lines)
		for s := bufio.NewScanner(told); s.Scan(); {
			c.lines <- s.Text()
		}
	})
	wg.Go(func() {
		code := run(ctx, args, in, io.MultiWriter(c.stdout, tell), tell, &left)
		_ = tell.Close()
		_ = in.Close()
		c.code <- code
	})
	t.Cleanup(func() { stop(nil); _ = stdin.Close(); wg.Wait() })
	return c
}

// next waits for a line that has text in it.
func (c *command) next(t *testing.T, text string) string {
	t.Helper()
	var before []string
	for l := range c.lines {
		if strings.Contains(l, text) {
			return l
		}
		before = append(before, l)
	}
	t.Fatalf("%q was not printed, but %q", text, before)
	return ""
}

// exit waits for the end.
func (c *command) exit(t *testing.T, want int) {
	t.Helper()
	var last []string
	for l := range c.lines {
		last = append(last, l)
	}
	if code := <-c.code; code != want {
		t.Fatalf("exit status %d, want %d, after %q", code, want, last)
	}
}

func TestUsage(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"unknown command":       {[]string{"nonsense"}, `unknown command "nonsense"`},
		"demo: unknown flag":    {[]string{"demo", "--nonsense"}, "nonsense"},
		"demo: no members":      {[]string{"demo", "--members", "0"}, "--members 0: want 1 to 100"},
		"demo: many members":    {[]string{"demo", "--members", "101"}, "--members 101: want 1 to 100"},
		"demo: batch":           {[]string{"demo", "--batch", "-1"}, "--batch -1: want 1 to 10000"},
		"demo: seed":            {[]string{"demo", "--seed", "x"}, "seed"},
		"demo: no such file":    {[]string{"demo", "testdata/none"}, "testdata/none"},
		"demo: two files":       {[]string{"demo", "a", "b"}, "one FILE"},
		"demo: faults":          {[]string{"demo", "--faults", "some"}, "want one of light, heavy, off"},
		"demo: profile":         {[]string{"demo", "--profile", "auto"}, `"auto": want draft95 or kip93`},
		"demo: guarantee":       {[]string{"demo", "--guarantee", "always"}, `"always" is no guarantee`},
		"demo: no port":         {[]string{"demo", "--bootstrap", "nowhere"}, `"nowhere": want HOST:PORT[,HOST:PORT...]`},
		"demo: no host":         {[]string{"demo", "--bootstrap", "a:1,:2"}, `"a:1,:2": want HOST:PORT[,HOST:PORT...]`},
		"demo: high port":       {[]string{"demo", "--bootstrap", "a:99999"}, `"a:99999": want HOST:PORT[,HOST:PORT...]`},
		"demo: kept in vain":    {[]string{"demo", "--keep"}, "--keep without --bootstrap"},
		"demo: twice the same":  {[]string{"demo", "--compare", "--guarantee", "ack-after-commit"}, "--compare with --guarantee=ack-after-commit: the same twice"},
		"demo: nothing to show": {[]string{"demo", "--compare", "--faults", "off"}, "--compare with --faults=off"},
		"broker: no port":       {[]string{"broker", "--listen", "nowhere"}, "--listen: address nowhere: missing port"},
		"broker: high port":     {[]string{"broker", "--listen", "127.0.0.1:99999"}, `--listen: port "99999"`},
		"broker: past the end":  {[]string{"broker", "--listen", "127.0.0.1:65535", "--brokers", "2"}, "no 2 ports from 65535 on"},
		"broker: none":          {[]string{"broker", "--brokers", "0"}, "--brokers 0: want 1 to 10"},
		"broker: partitions":    {[]string{"broker", "--topic", "x:y"}, `"x:y": want NAME:PARTITIONS`},
		"broker: no partitions": {[]string{"broker", "--topic", "x:0"}, `"x:0": want NAME:PARTITIONS, with at least 1 partition`},
		"broker: no name":       {[]string{"broker", "--topic", ":3"}, `":3": want NAME:PARTITIONS`},
		"broker: topic twice":   {[]string{"broker", "--topic", "x:1", "--topic", "x:2"}, "each name once"},
		"broker: argument":      {[]string{"broker", "x"}, `unexpected ["x"]`},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if code := run(ctx, c.args, nil, &out, &errs, &left); code != exitUsage || out.Len() > 0 || !strings.Contains(errs.String(), c.says) {
				t.Errorf("exit status %d, stdout %q, stderr %q", code, out.String(), errs.String())
			}
		})
	}
}

func TestHelp(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	for says, lines := range map[string][][]string{
		"130 demo interrupted":                {nil, {"help"}, {"-h"}, {"--help"}},
		"light (each kind once; the default)": {{"demo", "-h"}},
		"with at least 1; repeatable":         {{"broker", "--help"}},
		"survive this process, SIGKILL too":   {{"broker", "--help"}},
	} {
		for _, args := range lines {
			var out bytes.Buffer
			if code := run(ctx, args, nil, &out, &out, &left); code != exitOK || !strings.Contains(out.String(), says) || !strings.Contains(out.String(), "sharetxn ") {
				t.Errorf("%q: exit status %d, %q", args, code, out.String())
			}
		}
	}
}
