package processor_test

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
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
