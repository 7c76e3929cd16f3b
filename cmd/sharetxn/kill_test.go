package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// killable is `sharetxn broker --data` as a process of its own.
type killable struct {
	t    *testing.T
	args []string
	doom *doom // of the next process; nil: it is the program itself
	cmd  *exec.Cmd
}

// free is an address that nobody listens on.
func free(ctx context.Context, t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts the process and waits until it serves.
func (k *killable) start(ctx context.Context) {
	k.t.Helper()
	self, err := os.Executable()
	if err != nil {
		k.t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, k.args...)
	as := asProgram + "=1"
	if k.doom != nil {
		text, err := json.Marshal(k.doom)
		if err != nil {
			k.t.Fatal(err)
		}
		as = asDoomed + "=" + string(text)
	}
	cmd.Env = append(os.Environ(), as)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.cmd = cmd
	if s := bufio.NewScanner(out); !s.Scan() || !strings.Contains(s.Text(), "listening:") {
		k.t.Fatalf("the broker said %q", s.Text())
	}
}

// kill ends the process as a crash does, and fails the test unless it did.
func (k *killable) kill() {
	k.t.Helper()
	_ = k.cmd.Process.Kill()
	k.dead()
}

// end ends the process if there is one, for tests that may be over amid its death.
func (k *killable) end() {
	if k.cmd.ProcessState == nil {
		_ = k.cmd.Process.Kill()
		_ = k.cmd.Wait()
	}
}

// dead waits until the process is dead, and fails the test unless it was killed.
func (k *killable) dead() {
	k.t.Helper()
	if err := k.cmd.Wait(); !sigkilled(err) {
		k.t.Fatalf("the broker was to be killed: %v", err)
	}
}

// sigkilled tells whether a process that ended so was killed.
func sigkilled(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// A service whose broker is killed again and again in the midst of its
// transactions goes on with the broker's next life, and of each input the output is
// there once, or its dead letter, where deliveries were cut short too often. In
// profile KIP93, where what is staged is lost with the broker, at least once.
func TestBrokerKilled(t *testing.T) {
	t.Parallel()
	const inputs, kills = 600, 4
	const share = inputs / (kills + 2) // inputs from one kill to the next
	for _, profile := range []sharetxn.Profile{sharetxn.ProfileDraft95, sharetxn.ProfileKIP93} {
		t.Run(profile.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testkit.Deadline(t, 5*time.Minute)
			addr := free(ctx, t)
			b := &killable{t: t, args: []string{"broker", "--listen", addr, "--data", t.TempDir(), "--profile", profile.String(), "--topic", "in:3", "--topic", "out:3", "--topic", "dead"}}
			b.start(ctx)
			defer func() { b.kill() }()
			cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(addr), kgo.DisableClientMetrics()), sharetxn.WithProfile(profile), sharetxn.Logger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()

			var all sync.WaitGroup
			defer all.Wait()
			outer := ctx
			ctx, stop := context.WithTimeout(ctx, 3*time.Minute) // what is then told takes time
			defer stop()
			if err := groupconfig.Set(ctx, cl, "g", groupconfig.DeliveryCountLimit(10)); err != nil { // each kill may cost a delivery, and some abort besides
				t.Fatal(err)
			}
			deaths := make(chan struct{}, kills)
			all.Go(func() { // feeds while brokers die
				feed, err := cl.Client(kgo.DefaultProduceTopic("in"))
				if err != nil {
					t.Error(err)
					return
				}
				defer feed.Close()
				for i := range inputs {
					if i%share == 0 && i > share { // so that there is something to do at each kill
						select {
						case <-deaths:
						case <-ctx.Done():
							return
						}
					}
					if err := feed.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
						t.Errorf("input %d: %v", i, err)
						return
					}
				}
			})
			p, err := processor.New(cl, processor.Config{
				Group: "g", TransactionalID: "copy", Topics: []string{"in"}, Members: 2, MaxRecords: 20, DeadLetter: processor.DeadLetter{Topic: "dead"},
				Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
					return []*kgo.Record{{Topic: "out", Value: in.Value}}, nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				if err := p.Run(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("processor: %v", err)
				}
			})

			seen := make(map[string]int)
			reader, err := cl.Client(kgo.ConsumeTopics("out", "dead"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			killed := 0
			for len(seen) < inputs {
				fs := reader.PollFetches(ctx)
				if ctx.Err() != nil {
					t.Fatalf("%d of %d inputs' outputs after %d kills, without %v", len(seen), inputs, killed, missing(inputs, seen))
				}
				fs.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
				if killed < kills && len(seen) > (killed+1)*share {
					b.kill() // whatever it was at
					killed++
					b.start(outer)
					deaths <- struct{}{}
				}
			}
			if killed != kills {
				t.Errorf("killed %d times", killed)
			}
			// What there is at the end, from the beginning: nothing was doubled, or
			// taken back, behind the reader.
			stop()
			all.Wait()
			again := visible(outer, t, cl, "out", "dead")
			for i := range inputs {
				n := again[fmt.Sprint(i)]
				if n < 1 || n > 1 && profile == sharetxn.ProfileDraft95 {
					t.Errorf("input %d is there %d times", i, n)
				}
			}
			if len(again) != inputs {
				t.Errorf("%d outputs of %d inputs", len(again), inputs)
			}
		})
	}
}

// missing are the inputs that nothing is seen of.
func missing(inputs int, seen map[string]int) (out []int) {
	for i := range inputs {
		if seen[fmt.Sprint(i)] == 0 {
			out = append(out, i)
		}
	}
	return out
}

// visible counts the values that a read_committed reader finds in topics, from
// the beginning to what is stable now.
func visible(ctx context.Context, t *testing.T, cl *sharetxn.Cluster, topics ...string) map[string]int {
	t.Helper()
	k, err := cl.Client(kgo.ConsumeTopics(topics...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	ends, err := kadm.NewClient(k).ListCommittedOffsets(ctx, topics...)
	if err != nil {
		t.Fatal(err)
	}
	type log struct {
		topic     string
		partition int32
	}
	left := make(map[log]int64) // last offset
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[log{o.Topic, o.Partition}] = o.Offset - 1
		}
	})
	found := make(map[string]int)
	for len(left) > 0 {
		fs := k.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("not read to the end: %v", left)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				found[string(r.Value)]++
			}
			at := log{r.Topic, r.Partition}
			if last, ok := left[at]; ok && r.Offset >= last {
				delete(left, at)
			}
		})
	}
	return found
}
