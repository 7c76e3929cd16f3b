package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// jobEnv names the variable with which the test binary becomes a process of
// members.
const jobEnv = "SHARETXN_CHAOS_JOB"

// job is what such a process is told, as JSON.
type job struct {
	Seeds                       []string
	Group, Source, Output, Dead string
	Topics                      map[string]string // names by topic id, in hex
	Guarantee                   string
	Instance                    string
	Members                     int
	MaxRecords                  int
	Round                       int
	Journal                     string
	Seed                        uint64
	Lock, Margin                time.Duration
	TransactionTimeout          time.Duration
	Harm                        harm
}

// exits of a process that ended by itself.
const (
	exitFailed = 1
	exitFenced = 3 // another process with its transactional ids took over
)

// child is the main function of such a process. It ends in good order when its
// standard input does: when its parent says so, or is gone.
func child(text string) (code int) {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	err := j.run(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, sharetxn.ErrFenced):
		return exitFenced
	}
	fmt.Fprintln(os.Stderr, err)
	return exitFailed
}

func (j job) run(ctx context.Context) (err error) {
	log, err := openJournal(j.Journal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.close()) }()
	guarantee, err := processor.ParseGuarantee(j.Guarantee)
	if err != nil {
		return err
	}
	tap := kafka.NewTap()
	defer tap.Close()
	tap.Look(j.deliveries(log))
	w := &witness{log: log}
	cl, err := sharetxn.Connect(
		sharetxn.Kafka(kgo.SeedBrokers(j.Seeds...), kgo.MetadataMinAge(100*time.Millisecond), kgo.Dialer(tap.Dial)),
		sharetxn.WithHooks(w),
		sharetxn.Logger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	if err != nil {
		return err
	}
	defer cl.Close()
	h := newHarmer(j.Harm, j.Seed, log)
	tap.Decide(h.fate)
	core.Of(cl).OnStep(h.step)
	p, err := processor.New(cl, processor.Config{
		Group: j.Group, Topics: []string{j.Source}, Handler: j.handler(h),
		TransactionalID: j.Group, Instance: j.Instance, Guarantee: guarantee,
		DeadLetter: processor.DeadLetter{Topic: j.Dead, Build: j.deadLetter},
		Members:    j.Members, Concurrency: 2, MaxRecords: j.MaxRecords,
		TransactionTimeout: j.TransactionTimeout, LockMargin: j.Margin,
		StopTimeout: 10 * time.Second, HandlerTimeout: 5 * time.Second,
		Failure: processor.Failure{Attempts: 2, Backoff: func(int) time.Duration { return 20 * time.Millisecond }},
	})
	if err != nil {
		return err
	}
	if err := p.Run(ctx); err != nil {
		log.line(wordEnd, err)
		return err
	}
	return nil
}

// die kills the process, as a crash does.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // not one instruction more
}

// env is the variable for a process that does the job.
func (j job) env() (string, error) {
	text, err := json.Marshal(j)
	return jobEnv + "=" + string(text), err
}
