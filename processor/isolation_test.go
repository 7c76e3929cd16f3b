package processor_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// abortedInput gives topic "in" a committed record "kept" and an aborted one
// "undone".
func (w *world) abortedInput(t *testing.T) {
	t.Helper()
	p, err := kgo.NewClient(append(w.Kafka(), kgo.TransactionalID("stage-1"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for value, end := range map[string]kgo.TransactionEndTry{"undone": kgo.TryAbort, "kept": kgo.TryCommit} {
		if err := p.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := p.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := p.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
}

// logged is what a logger was given.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// Isolation is the group's: with the default a Processor is handed what was
// aborted, and warns once how to mend it, unless told that it is meant; with
// read_committed it is not.
func TestInputIsolation(t *testing.T) {
	for name, tc := range map[string]struct {
		committed bool
		policy    processor.InputIsolation
		outputs   int
		warnings  int
	}{
		"default":            {false, processor.WarnReadUncommitted, 2, 1},
		"meant":              {false, processor.AllowReadUncommitted, 2, 0},
		"committed":          {true, processor.WarnReadUncommitted, 1, 0},
		"committed, as told": {true, processor.RequireReadCommitted, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, draft95, sharetxntest.Group("g", sharetxntest.GroupConfig{ReadCommitted: tc.committed}))
				w.abortedInput(t)
				var log logged
				p, err := processor.New(w.Connect(t, sharetxn.Logger(slog.New(slog.NewTextHandler(&log, nil)))), processor.Config{
					Group: "g", Topics: []string{"in"}, DeadLetter: processor.DeadLetter{Topic: "dead"}, Handler: w.seen.handler(nil), InputIsolation: tc.policy,
				})
				if err != nil {
					t.Fatal(err)
				}
				stop := run(t, p)
				eventually(t, "drained", func() bool { return len(w.Committed(t, "out")) == tc.outputs })
				time.Sleep(2 * time.Minute) // the group is looked at every 30 s; virtual
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				out := w.values(t, "out")
				if out["kept"] != 1 || out["undone"] != tc.outputs-1 || len(out) != tc.outputs {
					t.Errorf("outputs %v", out)
				}
				if n := log.count("reads uncommitted"); n != tc.warnings {
					t.Errorf("warned %d times, want %d", n, tc.warnings)
				}
				if tc.warnings > 0 && log.count("groupconfig.Set") == 0 {
					t.Error("the warning does not say how to mend it")
				}
			})
		})
	}
}

// A group that begins to read uncommitted while the Processor runs is warned of,
// and again the next time.
func TestInputIsolationChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, draft95, sharetxntest.Group("g", sharetxntest.GroupConfig{ReadCommitted: true}))
		var log logged
		p, err := processor.New(w.Connect(t, sharetxn.Logger(slog.New(slog.NewTextHandler(&log, nil)))), processor.Config{
			Group: "g", Topics: []string{"in"}, DeadLetter: processor.DeadLetter{Topic: "dead"}, Handler: w.seen.handler(nil), InputIsolation: processor.RequireReadCommitted,
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, p)
		for n, level := range []groupconfig.Isolation{groupconfig.ReadUncommitted, groupconfig.ReadCommitted, groupconfig.ReadUncommitted} {
			time.Sleep(time.Minute)
			w.groupConfig(t, groupconfig.IsolationLevel(level))
			time.Sleep(time.Minute)
			if got, want := log.count("reads uncommitted"), []int{1, 1, 2}[n]; got != want {
				t.Errorf("%d warnings after %v, want %d", got, level, want)
			}
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// Required isolation is a refusal before anything is handled; it is one too
// where the level may not be read, and no hindrance to a stop.
func TestRequireReadCommitted(t *testing.T) {
	config := func(w *world) processor.Config {
		return processor.Config{
			Group: "g", Topics: []string{"in"}, DeadLetter: processor.DeadLetter{Topic: "dead"}, Handler: w.seen.handler(nil), InputIsolation: processor.RequireReadCommitted,
		}
	}
	const describeConfigs, heartbeat = 32, 76
	t.Run("uncommitted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := start(t, draft95)
			err := w.processor(t, config(w)).Run(t.Context())
			if !errors.Is(err, processor.ErrReadUncommitted) || !sharetxn.IsFatal(err) || !strings.Contains(err.Error(), "share.isolation.level=read_committed") {
				t.Errorf("Run: %v", err)
			}
			if n := w.Requests(heartbeat); n != 0 {
				t.Errorf("%d heartbeats", n)
			}
			w.groupConfig(t, groupconfig.IsolationLevel(groupconfig.ReadCommitted))
			if err := run(t, w.processor(t, config(w)))(); err != nil {
				t.Errorf("after it was mended: %v", err)
			}
		})
	})
	t.Run("not to be read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := start(t, draft95)
			w.Inject(t, sharetxntest.Fault{Key: describeConfigs, Action: sharetxntest.Answer(kerr.GroupAuthorizationFailed.Code)})
			if err := w.processor(t, config(w)).Run(t.Context()); !errors.Is(err, kerr.GroupAuthorizationFailed) || !sharetxn.IsFatal(err) {
				t.Errorf("Run: %v", err)
			}
		})
	})
	t.Run("out of reach, then there", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := start(t, draft95)
			fired := w.Inject(t, sharetxntest.Fault{Key: describeConfigs, Action: sharetxntest.LoseRequest()})
			if err := w.processor(t, config(w)).Run(t.Context()); !errors.Is(err, processor.ErrReadUncommitted) {
				t.Errorf("Run: %v", err)
			}
			<-fired
		})
	})
	t.Run("stopped meanwhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := start(t, draft95)
			fired := w.Inject(t, sharetxntest.Fault{Key: describeConfigs, Action: sharetxntest.Delay(10 * time.Second)})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- w.processor(t, config(w)).Run(ctx) }()
			<-fired
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	})
}
