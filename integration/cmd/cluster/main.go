// Command cluster starts stock Kafka as processes, runs a command while it is
// up, and stops it:
//
//	cluster [-n 3] [-set KEY=VALUE]... COMMAND [ARGUMENT...]
//
// The command finds the brokers' addresses in SHARETXN_BOOTSTRAP. Its exit status
// is that of cluster; 125 is for what went wrong before it or after it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
)

const (
	exitUsage = 2
	exitOwn   = 125
)

func main() {
	var settings []kafka.Setting
	n := flag.Int("n", 3, "brokers")
	flag.Func("set", "a line of server.properties, KEY=VALUE; repeatable", func(s string) error {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return fmt.Errorf("%q: want KEY=VALUE", s)
		}
		settings = append(settings, kafka.Set(key, value))
		return nil
	})
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), `usage: cluster [-n 3] [-set KEY=VALUE]... COMMAND [ARGUMENT...]

Start stock Kafka as processes, run COMMAND with their addresses in SHARETXN_BOOTSTRAP, and stop them when it ends.
Exit status: COMMAND's; 2 usage; 125 for what went wrong before or after it.
`)
		flag.PrintDefaults()
	}
	flag.Parse()
	if *n < 1 || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(exitUsage)
	}
	status, err := run(*n, settings, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		status = exitOwn
	}
	os.Exit(status)
}

// startLimit bounds the start; the jars may have to be fetched.
const startLimit = 5 * time.Minute

// run gives the command's exit status.
func run(n int, settings []kafka.Setting, command []string) (status int, err error) {
	dir, err := os.MkdirTemp("", "sharetxn-cluster-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, err := start(dir, n, settings)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	bootstrap := strings.Join(c.Seeds(), ",")
	fmt.Fprintf(os.Stderr, "Kafka %s, %d brokers: %s\n", c.Version, n, bootstrap)
	status, err = execute(command, bootstrap)
	return status, errors.Join(err, c.Ended())
}

func start(dir string, n int, settings []kafka.Setting) (*kafka.Cluster, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return kafka.Start(ctx, dir, n, settings...)
}

// execute runs the command until it ends by itself, so that it still has brokers to
// tidy up with. An interrupt reaches it from the terminal; a SIGTERM is passed on.
func execute(command []string, bootstrap string) (status int, err error) {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), kafka.BootstrapEnv+"="+bootstrap)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err = cmd.Run(); cmd.ProcessState != nil && cmd.ProcessState.Exited() {
		return cmd.ProcessState.ExitCode(), nil
	}
	return 0, err
}
