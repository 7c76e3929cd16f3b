package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/shareconsumer"
)

// The first acknowledgements start the clock and do not count; what aborted
// counts nothing.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(10)
		time.Sleep(time.Minute) // joining
		c.OnTxnEnd(t.Context(), sharetxn.TxnEnd{Outcome: sharetxn.Committed, Records: 4})
		time.Sleep(time.Second)
		c.OnTxnEnd(t.Context(), sharetxn.TxnEnd{Outcome: sharetxn.Aborted, Records: 6})
		c.OnTxnEnd(t.Context(), sharetxn.TxnEnd{Outcome: sharetxn.Unknown, Records: 6})
		select {
		case <-c.over:
			t.Fatal("over though 6 are left")
		default:
		}
		c.onAcknowledged(shareconsumer.AckResult{Batches: []acks.AcknowledgementBatch{
			{FirstOffset: 0, LastOffset: 3, Types: []acks.Type{acks.Accept}},
			{FirstOffset: 4, LastOffset: 5, Types: []acks.Type{acks.Release, acks.Accept}},
		}})
		time.Sleep(time.Second)
		c.add(1)
		if err := c.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := c.lap(), (lap{6, 2 * time.Second}); got != want {
			t.Errorf("lap %v, want %v", got, want)
		}
	})
}

func TestClockFails(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	refused := errors.New("refused")
	c := newClock(10)
	c.onAcknowledged(shareconsumer.AckResult{Err: refused})
	if err := c.wait(ctx); !errors.Is(err, refused) {
		t.Errorf("after a refusal: %v", err)
	}

	c = newClock(10)
	c.add(11)
	if err := c.wait(ctx); err == nil {
		t.Error("more than all are taken without a word")
	}

	ended, end := context.WithCancel(ctx)
	end()
	if err := newClock(1).wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was given up: %v", err)
	}
}
