package processor_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// logging is a processor of group whose log can be looked at.
func (w *world) logging(t *testing.T, group string, cfg processor.Config) (*processor.Processor, *logged) {
	t.Helper()
	told := &logged{}
	cfg.Group, cfg.Topics, cfg.Instance, cfg.DeadLetter.Topic, cfg.Handler = group, []string{"in"}, "here", "dead", w.seen.handler(nil)
	p, err := processor.New(w.Connect(t, sharetxn.Logger(slog.New(slog.NewTextHandler(told, nil)))), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p, told
}

// Fallback is for brokers that do not prove the first guarantee, and for no others.
func TestFallback(t *testing.T) {
	for name, c := range map[string]struct {
		on   setting
		want processor.Guarantee
	}{
		"proven":     {draft95, processor.Staged},
		"not proven": {setting{guarantee: processor.Staged}, processor.AckAfterCommit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, c.on)
				w.feed(t, 10)
				p, told := w.logging(t, "fallback-"+c.want.String(), processor.Config{Fallback: []processor.Guarantee{processor.AckAfterCommit}})
				stop := run(t, p)
				w.WaitDrained(t, "fallback-"+c.want.String())
				if got := p.Status().Guarantee; got != c.want {
					t.Errorf("in force is %v", got)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if got, want := told.count("another guarantee"), int(c.want); (got == 1) != (want > 0) {
					t.Errorf("told of it %d times", got)
				}
				if got := w.values(t, "out"); len(got) != 10 {
					t.Errorf("outputs %v", got)
				}
				if n := w.Requests(sharetxntest.StageKey); (n > 0) != (c.want == processor.Staged) {
					t.Errorf("%d staging requests", n)
				}
			})
		})
	}
}

// That it is at least once is told once for a group, however many Processors work
// on it in a process.
func TestAckAfterCommitWarnsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, plain)
		n := 0
		for range 3 {
			p, told := w.logging(t, "warned", processor.Config{Guarantee: processor.AckAfterCommit})
			stop := run(t, p)
			eventually(t, "ready", func() bool { return p.Status().Ready })
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			n += told.count("at least once")
		}
		if n != 1 {
			t.Errorf("warned %d times", n)
		}
	})
}

// A group is bound to the guarantee that its ledger topic names: who is to keep
// another refuses before it joins, and says how to mend that; who may fall back to
// it keeps it, and all goes on.
func TestBoundGroup(t *testing.T) {
	both := []processor.Guarantee{processor.Ledger, processor.AckAfterCommit}
	for name, c := range map[string]struct {
		bound    processor.Guarantee
		want     processor.Guarantee
		fallback []processor.Guarantee
		kept     bool
	}{
		"ledger, and staged wanted":             {processor.Ledger, processor.Staged, nil, false},
		"ledger, and acks after commits wanted": {processor.Ledger, processor.AckAfterCommit, nil, false},
		"ledger, as a fallback":                 {processor.Ledger, processor.Staged, both, true},
		"staged, and the ledger wanted":         {processor.Staged, processor.Ledger, both[1:], false},
		"staged, and wanted":                    {processor.Staged, processor.Staged, both, true},
		"staged, as a fallback":                 {processor.Staged, processor.Ledger, []processor.Guarantee{processor.Staged}, true},
		"acks after commits, as a fallback":     {processor.AckAfterCommit, processor.Staged, both, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, draft95)
				w.guarantee = c.want
				w.feed(t, 5)
				w.ensure(t)
				if c.bound != processor.Ledger {
					w.record(t, c.bound, 2)
				}
				p := w.processor(t, processor.Config{Fallback: c.fallback})
				if !c.kept {
					err := p.Run(t.Context())
					if !errors.Is(err, processor.ErrGuarantee) || !sharetxn.IsFatal(err) || !strings.Contains(err.Error(), "sharetxn ledger move") {
						t.Errorf("Run: %v", err)
					}
					if m := p.Status().Members[0]; m.State != "failed" || m.Err == nil || w.Requests(sharetxntest.HeartbeatKey) > 0 {
						t.Errorf("%+v, %d heartbeats", m, w.Requests(sharetxntest.HeartbeatKey))
					}
					return
				}
				stop := run(t, p)
				w.WaitDrained(t, "g")
				if got := p.Status().Guarantee; got != c.bound {
					t.Errorf("in force is %v", got)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if got := w.values(t, "out"); len(got) != 5 {
					t.Errorf("outputs %v", got)
				}
			})
		})
	}
}

// A process that was cut off while its group was moved comes back as a member, and
// ends when it finds that; so does one that a group's first ledger passed by. What is
// written without another guarantee ends nobody.
func TestBoundWhileWorking(t *testing.T) {
	bound := func(number int64, g processor.Guarantee, phase entry.Phase) entry.Generation {
		return entry.Generation{Number: number, Guarantee: g.String(), Phase: phase, Group: "g"}
	}
	for name, c := range map[string]struct {
		before, meanwhile []entry.Generation
		ends              error // nil: it goes on
	}{
		"moved":               {[]entry.Generation{bound(2, processor.Staged, entry.Active)}, []entry.Generation{bound(3, processor.Ledger, entry.Active)}, processor.ErrGuarantee},
		"its first ledger":    {nil, []entry.Generation{bound(1, processor.Ledger, entry.Active)}, processor.ErrGuarantee},
		"about to be moved":   {[]entry.Generation{bound(2, processor.Staged, entry.Active)}, []entry.Generation{bound(3, processor.Ledger, entry.Resetting)}, ledger.ErrMoving},
		"moved, and back":     {[]entry.Generation{bound(2, processor.Staged, entry.Active)}, []entry.Generation{bound(3, processor.Ledger, entry.Active), bound(4, processor.Staged, entry.Active)}, nil},
		"never bound":         {nil, nil, nil},
		"bound to what it is": {nil, []entry.Generation{bound(1, processor.Staged, entry.Active)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, draft95)
				co := core.Of(w.Connect(t))
				write := func(gs []entry.Generation) {
					t.Helper()
					for _, g := range gs {
						if err := errors.Join(co.Use(func(cl *kgo.Client) error { return topic.Make(t.Context(), cl, "g", 3, 0) }),
							topic.WriteGeneration(t.Context(), co, "g", g, []int32{0, 1, 2})); err != nil {
							t.Fatal(err)
						}
					}
				}
				write(c.before)
				w.feed(t, 5)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				p := w.processor(t, processor.Config{})
				go func() { done <- p.Run(ctx) }()
				w.WaitDrained(t, "g")
				write(c.meanwhile)
				if c.ends != nil {
					if err := <-done; !errors.Is(err, c.ends) || !sharetxn.IsFatal(err) {
						t.Errorf("Run: %v", err)
					}
					w.want(t, 5)
					return
				}
				seen := time.NewTimer(time.Minute)
				defer seen.Stop()
				select {
				case err := <-done:
					t.Fatalf("Run: %v", err)
				case <-seen.C:
				}
				w.feedMore(t, 5, 5)
				w.WaitDrained(t, "g")
				cancel()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				w.want(t, 10)
			})
		})
	}
}

// Without its topic there is no ledger, and none is made in passing: it is refused,
// with the command; and what stands before it among the candidates is kept.
func TestNoLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, setting{guarantee: processor.Staged})
		w.guarantee = processor.Ledger
		for name, fallback := range map[string][]processor.Guarantee{"alone": nil, "with a weaker one": {processor.AckAfterCommit}} {
			err := w.processor(t, processor.Config{Fallback: fallback}).Run(t.Context())
			if !sharetxn.IsFatal(err) || !strings.Contains(err.Error(), "sharetxn ledger create") {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.guarantee = processor.AckAfterCommit
		w.feed(t, 3)
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{Fallback: []processor.Guarantee{processor.Ledger}}))
		if got := w.values(t, "out"); len(got) != 3 {
			t.Errorf("outputs %v", got)
		}
	})
}

// A group whose name cannot be a topic's can have no ledger, and all else.
func TestGroupWithoutTopicName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, draft95)
		w.feed(t, 3)
		w.RunUntilDrained(t, "g:1", w.processor(t, processor.Config{Group: "g:1"}))
		cfg := processor.Config{
			Group: "g:1", Topics: []string{"in"}, Handler: w.seen.handler(nil), DeadLetter: processor.DeadLetter{Discard: true}, Fallback: []processor.Guarantee{processor.Ledger},
		}
		if _, err := processor.New(w.Connect(t), cfg); !errors.Is(err, sharetxn.ErrUsage) || !strings.Contains(err.Error(), "':'") {
			t.Errorf("New: %v", err)
		}
	})
}
