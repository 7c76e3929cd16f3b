package producer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What an attempt may have staged stays forgotten after the abort, whatever a
// later attempt is answered: a refusal denies only its own request. The records
// come back as the broker hands them out, and not as ours to acknowledge.
func TestRefusalDeniesOnlyItself(t *testing.T) {
	const part = 0
	for name, attempts := range map[string]func(t *testing.T, w *world, nth int64, r broker.Request) broker.Action{
		"staged in part before": func(_ *testing.T, _ *world, nth int64, r broker.Request) broker.Action {
			if nth > 1 {
				return broker.Action{Answer: stageAnswer(r, kerr.UnknownMemberID.Code)}
			}
			return broker.Action{After: func(kresp kmsg.Response) {
				kresp.(*wire.Response).Topics[0].Partitions[1].ErrorCode = kerr.CoordinatorLoadInProgress.Code
			}}
		},
		"staged without an answer before the leader moved": func(t *testing.T, w *world, nth int64, r broker.Request) broker.Action {
			switch nth {
			case 1:
				return broker.Action{LoseAnswer: true}
			case 2:
				return broker.Action{Before: func() {
					for p := range int32(3) {
						if err := w.MoveLeader("in", p, 1); err != nil {
							t.Error(err)
						}
					}
				}}
			}
			return broker.Action{Answer: stageAnswer(r, kerr.UnknownMemberID.Code)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			w := start(t, setup{})
			for p := range int32(3) {
				if err := w.MoveLeader("in", p, 0); err != nil {
					t.Fatal(err)
				}
			}
			w.feed(ctx, t, 3)
			c, p := w.consumer(t, "g"), w.producer(t, "tx")
			if err := p.InitTransactions(ctx); err != nil {
				t.Fatal(err)
			}
			bs := gather(ctx, t, c, 3)
			var nth atomic.Int64
			f := w.injectStage(1<<30, func(r broker.Request) broker.Action { return attempts(t, w, nth.Add(1), r) })
			out, err := w.one(ctx, p, bs, "first")
			if out != sharetxn.Aborted || !errors.Is(err, kerr.UnknownMemberID) {
				t.Fatalf("%v, %v", out, err)
			}
			if f.fired.Load() < 2 {
				t.Fatalf("the fault fired %d times", f.fired.Load())
			}
			w.SetIntercept(nil)
			for _, b := range bs {
				for _, r := range b.Records() {
					if r.Partition == part {
						t.Errorf("record %d-%d was staged, and is still held", r.Partition, r.Offset)
					}
				}
			}
			for _, b := range bs {
				b.Close()
			}
			for done := 0; done < 3; {
				b := poll(ctx, t, c)
				n := b.Len()
				out, err := p.InTransaction(ctx, b, func(context.Context, *Txn) error { b.AcceptRest(); return nil })
				if err != nil {
					t.Fatalf("%v, %v", out, err)
				}
				done += n
			}
			w.waitDone(ctx, t, "g", 3)
		})
	}
}
