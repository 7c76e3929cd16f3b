package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// forEver are answers that ask for patience, given without an end: a coordinator
// that loads, a transaction that is never through.
var forEver = []struct {
	key   sharetxntest.Key
	codes []int16
	class sharetxn.Class // of the error
}{
	{sharetxntest.FindCoordinatorKey, []int16{14, 15}, sharetxn.ClassAbortable},
	{sharetxntest.InitProducerIDKey, []int16{51, 14, 15, 16}, sharetxn.ClassAbortable},
	{sharetxntest.ProduceKey, []int16{51, 19}, sharetxn.ClassAbortable},
	{sharetxntest.StageKey, []int16{51, 14, 13, 15, 16, 19}, sharetxn.ClassAbortable},
	{sharetxntest.EndTxnKey, []int16{51, 14, 15, 16}, sharetxn.ClassUnknown},
}

// What brokers put off for ever ends with the caller's context, or with what is
// configured; the error says what it was, and the next Begin heals it.
func TestForEver(t *testing.T) {
	for _, on := range settings {
		if !on.byHand {
			continue
		}
		for _, f := range forEver {
			codes := f.codes
			if !*whole {
				codes = codes[:2]
			}
			for _, code := range codes {
				for name, patience := range map[string]time.Duration{"caller's context": 3 * time.Second, "configured": time.Hour} {
					t.Run(fmt.Sprintf("%s, %v %d, %s", on.name, f.key, code, name), func(t *testing.T) {
						testkit.Deadline(t, 5*time.Minute)
						synctest.Test(t, func(t *testing.T) { testForEver(t, on, f.key, code, patience, f.class) })
					})
				}
			}
		}
	}
}

// bound is the default of what a transaction may take in all: its own timeout,
// and that of its end.
const bound = 15*time.Second + 30*time.Second

func testForEver(t *testing.T, on setting, key sharetxntest.Key, code int16, patience time.Duration, class sharetxn.Class) {
	w := start(t, on)
	cl := w.Connect(t, sharetxn.Kafka(kgo.ClientID(client)), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	c, p, err := hands(cl)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer p.Close()
	batch, err := c.Poll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	healed := make(chan struct{})
	fired := w.Inject(t, sharetxntest.Fault{Key: key, Times: sharetxntest.Always, Until: healed, ClientID: client, Action: sharetxntest.Answer(code)})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	err = copyOnce(ctx, p, batch)
	took := time.Since(began)
	<-fired
	<-fired
	if got := sharetxn.ClassOf(err); got != class {
		t.Errorf("class %v, want %v: %v", got, class, err)
	}
	// What kgo tries again by itself it does not tell of.
	if ofKgo := key == sharetxntest.ProduceKey || key == sharetxntest.FindCoordinatorKey; !ofKgo && !errors.Is(err, kerr.ErrorForCode(code)) {
		t.Errorf("does not tell what the broker answers: %v", err)
	}
	// The end of the caller's context ends all but the question for the outcome.
	if most := min(patience, bound) + map[bool]time.Duration{true: bound}[class == sharetxn.ClassUnknown] + time.Second; took > most {
		t.Errorf("took %v, want at most %v: %v", took, most, err)
	}
	if n := len(w.Committed(t, "out")); n != 0 {
		t.Errorf("%d outputs are visible", n)
	}
	close(healed)
	batch.Close()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- copyAll(ctx, c, p) }()
	w.WaitDrained(t, "g")
	stop()
	if err := <-done; err != nil {
		t.Errorf("healed: %v", err)
	}
	w.judge(t, false)
}
