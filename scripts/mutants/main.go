// Mutants runs the mistakes of internal/mutants, each against the test that must
// find it. First the tests run on the sources as they are: a test that fails
// anyway finds nothing. Called by `make mutants`, from the module's folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/internal/mutants"
)

var (
	only    = flag.String("run", "", "only mutants whose name matches this regular expression")
	workers = flag.Int("j", 2, "how many at a time")
	control = flag.Bool("control", true, "run the tests on the sources as they are, first")
	least   = flag.Duration("timeout", 2*time.Minute, "for the tests of each mutant, or longer where they are slow without any mistake; a hang is a finding too")
)

// controlTimeout is for the tests of one package without any mistake.
const controlTimeout = 10 * time.Minute

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	all, err := chosen()
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	began := time.Now()
	within := make(map[mutants.Suite]time.Duration)
	for suite := range mutants.Suites(all) {
		within[suite] = *least
	}
	if *control {
		for suite, tests := range mutants.Suites(all) {
			start := time.Now()
			if out, err := test(ctx, controlTimeout, suite, tests); err != nil {
				return fmt.Errorf("without any mistake, %s: %w\n%s", suite.Package, err, tail(out))
			}
			within[suite] = max(*least, 2*time.Since(start))
		}
		fmt.Printf("without any mistake all pass (%v)\n", time.Since(began).Round(time.Second))
	}
	results := make([]error, len(all))
	var group sync.WaitGroup
	slots := make(chan struct{}, max(1, *workers))
	for i, m := range all {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			how, err := kill(ctx, within[m.Suite()], root, m)
			results[i] = err
			if err != nil {
				fmt.Printf("LIVES   %s: %v\n", m.Name, err)
				return
			}
			fmt.Printf("killed  %s: %s\n", m.Name, how)
		})
	}
	group.Wait()
	lived := 0
	for _, err := range results {
		if err != nil {
			lived++
		}
	}
	fmt.Printf("%d mutants, %d killed, %d live (%v)\n", len(all), len(all)-lived, lived, time.Since(began).Round(time.Second))
	if lived > 0 {
		return fmt.Errorf("%d live", lived)
	}
	return nil
}

func chosen() ([]mutants.Mutant, error) {
	match, err := regexp.Compile(*only)
	if err != nil {
		return nil, err
	}
	all, err := mutants.List()
	if err != nil {
		return nil, err
	}
	var out []mutants.Mutant
	for _, m := range all {
		if match.MatchString(m.Name) {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no mutant has such a name")
	}
	return out, nil
}

// kill builds one mistake and runs its tests. It gives the first thing that they
// say; an error if the mistake lives, or nothing could be run.
func kill(ctx context.Context, within time.Duration, root string, m mutants.Mutant) (how string, _ error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // of no use to anybody
	overlay, err := mutants.Overlay(root, dir, m)
	if err != nil {
		return "", err
	}
	out, err := test(ctx, within, m.Suite(), m.Run, "-overlay", overlay, "-failfast")
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err == nil:
		return "", fmt.Errorf("%s -run %s passes", m.Package, m.Run)
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		return "", fmt.Errorf("it does not build:\n%s", tail(out))
	}
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "--- FAIL: ") || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return line, nil
		}
	}
	return "", fmt.Errorf("it fails, and no test says so:\n%s", tail(out))
}

// test runs tests of a suite and gives what they print.
func test(ctx context.Context, within time.Duration, suite mutants.Suite, run string, options ...string) (string, error) {
	// Most of the time goes into building: nobody looks at vet's findings or debugs these.
	args := append([]string{"test", "-count=1", "-vet=off", "-ldflags=-s -w", "-timeout=" + within.String(), "-tags=" + suite.Tags, "-run", "^(" + run + ")$"}, options...)
	out, err := exec.CommandContext(ctx, "go", append(args, suite.Package)...).CombinedOutput()
	if strings.Contains(string(out), "[no tests to run]") {
		return string(out), errors.New("there are no such tests")
	}
	return string(out), err
}

// tail is the end of a long output.
func tail(out string) string {
	const most = 2000
	if len(out) > most {
		return "..." + out[len(out)-most:]
	}
	return out
}
