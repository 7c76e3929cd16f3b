package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/ledger"
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
	TruncateEvery               time.Duration // 0: not
	Harm                        harm
}

// exits of a process that ended by itself.
const (
	exitFailed = 1
	exitFenced = 3 // another process with its transactional ids took over
)

// child is the main function of such a process. Its parent tells it by lines on
// its standard input at which step to stop itself next. It ends in good order when
// its standard input does: when its parent says so, or is gone.
func child(text string) (code int) {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	err := j.run(os.Stdin)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, sharetxn.ErrFenced):
		return exitFenced
	}
	fmt.Fprintln(os.Stderr, err)
	return exitFailed
}

func (j job) run(orders io.Reader) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
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
	w := &witness{log: log}
	cl, err := sharetxn.Connect(
		sharetxn.Kafka(kgo.SeedBrokers(j.Seeds...), kgo.MetadataMinAge(100*time.Millisecond), kgo.Dialer(tap.Dial)),
		sharetxn.WithHooks(w),
		sharetxn.Logger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	if err != nil {
		return err
	}
	defer cl.Close()
	h := newHarmer(j.Harm, j.Seed, log, tap)
	tap.Decide(h.fate)
	tap.Look(j.deliveries(log, h.again))
	core.Of(cl).OnStep(h.step)
	go func() {
		defer cancel()
		for lines := bufio.NewScanner(orders); lines.Scan(); {
			h.obey(lines.Text())
		}
	}()
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
	var truncating sync.WaitGroup
	defer truncating.Wait()
	defer cancel()
	if j.TruncateEvery > 0 {
		truncating.Go(func() { j.truncate(ctx, cl, log) })
	}
	if err := p.Run(ctx); err != nil {
		log.line(wordEnd, err)
		return err
	}
	return nil
}

// truncate truncates the ledger now and again, far more often than the Processor
// does.
func (j job) truncate(ctx context.Context, cl *sharetxn.Cluster, log *journal) {
	tick := time.NewTicker(j.TruncateEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		soon, cancel := context.WithTimeout(ctx, 10*time.Second)
		n, err := ledger.Truncate(soon, cl, j.Group)
		cancel()
		if err != nil && ctx.Err() == nil {
			log.count("truncations failed", 1)
		}
		log.count("ledger offsets truncated", n)
	}
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
