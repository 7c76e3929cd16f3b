package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// asMember makes the test's binary a service of one member; its value is the job.
const asMember = "SHARETXN_TEST_AS_MEMBER"

// job is what such a service is told, as JSON. Its topics and its group are named
// after its case.
type job struct {
	Seed      string
	KIP93     bool
	Guarantee processor.Guarantee
	Case      string
	Step      string // at which it kills itself; none: it works until its standard input ends
	Journal   string
	History   string // a chronicle's file, for what it is told of its transactions; none: it is not noted
}

func (j job) profile() sharetxn.Profile {
	if j.KIP93 {
		return sharetxn.ProfileKIP93
	}
	return sharetxn.ProfileDraft95
}

// connect connects as the job's processes do, and as those who judge them do.
func (j job) connect(opts ...sharetxn.Opt) (*sharetxn.Cluster, error) {
	return sharetxn.Connect(append(opts, sharetxn.Kafka(kgo.SeedBrokers(j.Seed), kgo.DisableClientMetrics()),
		sharetxn.WithProfile(j.profile()), sharetxn.Logger(slog.New(slog.DiscardHandler)))...)
}

func (j job) in() string   { return "in-" + j.Case }
func (j job) out() string  { return "out-" + j.Case }
func (j job) dead() string { return "dead-" + j.Case }

// Words of a witness's lines, each followed by one more word.
const (
	wordCall = "call" // of the handler, for a value
	wordDone = "done" // records that the ledger told to be done
	wordKill = "kill" // the process kills itself at this step
)

// witness is a file of lines that survive the process that writes them.
type witness struct{ file *os.File }

func (l witness) line(word string, of any) {
	if _, err := fmt.Fprintln(l.file, word, of); err != nil {
		panic(err) // what happened must not go unwritten
	}
}

// OnLedger implements sharetxn.HookLedger.
func (l witness) OnLedger(e sharetxn.LedgerEvent) {
	if e.Event == sharetxn.LedgerDone {
		l.line(wordDone, e.Records)
	}
}

// answered is the step at which the answer to EndTxn lies in the process and
// nothing of the library has seen it.
const answered = "answered"

// reader is told that the answer to EndTxn was read, before anybody else sees it.
type reader func(step string)

const keyEndTxn = 26

// OnBrokerRead implements kgo.HookBrokerRead.
func (r reader) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == keyEndTxn && err == nil {
		r(answered)
	}
}

// dieAt writes down that it comes to that, and ends the process as a crash does.
func (l witness) dieAt(step string) {
	l.line(wordKill, step)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // not one instruction more
}

// member is the main function of a service.
func member(text string) (code int) {
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = j.serve(os.Stdin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitWrong
	}
	return exitOK
}

func (j job) serve(until io.Reader) error {
	file, err := os.OpenFile(j.Journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	log := witness{file}
	var met atomic.Bool
	step := func(step string) {
		if step == j.Step && met.CompareAndSwap(false, true) {
			log.dieAt(step)
		}
	}
	opts := []sharetxn.Opt{sharetxn.WithHooks(log), sharetxn.Kafka(kgo.WithHooks(reader(step)))}
	if j.History != "" {
		events, err := openChronicle(j.History)
		if err != nil {
			return err
		}
		defer events.file.Close()
		opts = append(opts, sharetxn.WithHooks(events))
	}
	cl, err := j.connect(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	core.Of(cl).OnStep(step)
	p, err := processor.New(cl, processor.Config{
		Group: j.Case, Instance: "here", Topics: []string{j.in()}, Guarantee: j.Guarantee, DeadLetter: processor.DeadLetter{Topic: j.dead()},
		Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			log.line(wordCall, string(in.Value))
			return []*kgo.Record{{Topic: j.out(), Value: in.Value}}, nil
		},
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, until) // its end is what is waited for, or its parent's
		stop()
	}()
	return p.Run(ctx)
}

// service is a process of such a service.
type service struct {
	t     *testing.T
	job   job
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan error
	said  *os.File
}

// spawn starts a service; one whose job names no step must be told to end.
func spawn(ctx context.Context, t *testing.T, j job) *service {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	j.Journal = filepath.Join(t.TempDir(), "journal")
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, job: j, cmd: exec.CommandContext(ctx, self), ended: make(chan error, 1)}
	if s.said, err = os.Create(j.Journal + ".out"); err != nil {
		t.Fatal(err)
	}
	s.cmd.Env = append(os.Environ(), asMember+"="+string(text))
	s.cmd.Stdout, s.cmd.Stderr = s.said, s.said
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	return s
}

// stop ends the service in good order.
func (s *service) stop() {
	s.t.Helper()
	_ = s.stdin.Close() // fails for one that has ended
	if err := <-s.ended; err != nil {
		s.t.Fatalf("the service: %v\n%s", err, s.output())
	}
	_ = s.said.Close()
}

// dead waits until the service has killed itself.
func (s *service) dead() {
	s.t.Helper()
	if err := <-s.ended; !sigkilled(err) {
		s.t.Fatalf("the service was to die at step %s: %v\n%s", s.job.Step, err, s.output())
	}
	_ = s.said.Close()
	if at := s.lines(wordKill); len(at) != 1 || at[0] != s.job.Step {
		s.t.Fatalf("the service died at %q, not at step %s", at, s.job.Step)
	}
}

func (s *service) output() []byte {
	text, err := os.ReadFile(s.said.Name())
	if err != nil {
		s.t.Error(err)
	}
	return text
}

// lines are what the service wrote down under a word.
func (s *service) lines(word string) []string {
	s.t.Helper()
	return wordsOf(s.t, s.job.Journal, word)
}

// wordsOf are the lines of a witness's file under a word.
func wordsOf(t *testing.T, path, word string) (of []string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for in := bufio.NewScanner(file); in.Scan(); {
		w, rest, ok := strings.Cut(in.Text(), " ")
		if !ok {
			t.Fatalf("not a line of a witness: %q", in.Text())
		}
		if w == word {
			of = append(of, rest)
		}
	}
	return of
}
