package producer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// endBehindItsBack ends a member's share sessions at every broker, from another
// connection: the member learns of it when it next asks.
func (w *world) endBehindItsBack(ctx context.Context, t testing.TB, group, member string) {
	t.Helper()
	cl, err := w.cl.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for node := range int32(3) {
		req := kmsg.NewPtrShareAcknowledgeRequest()
		req.GroupID, req.MemberID, req.ShareSessionEpoch = &group, &member, -1
		if _, err := cl.Broker(int(node)).Request(ctx, req); err != nil {
			t.Fatal(err)
		}
	}
}

// A member that lost its records without knowing it must not publish their
// outputs once another member has: below the group's start a leader says success
// to staging and stages nothing.
func TestStagingWhatAnotherHasSettled(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 9)
		slow, quick := w.consumer(t, "g"), w.consumer(t, "g")
		mine := gather(ctx, t, slow, 9)
		w.endBehindItsBack(ctx, t, "g", slow.ShareGroupMetadata().MemberID())
		theirs := gather(ctx, t, quick, 3) // of what it is assigned
		settled := make(map[int32]bool)
		for _, b := range theirs {
			for _, r := range b.Records() {
				settled[r.Partition] = true
			}
		}
		if out, err := w.one(ctx, w.producer(t, "quick"), theirs, "theirs"); out != sharetxn.Committed {
			t.Fatalf("the other member: %v, %v", out, err)
		}
		var gone []*shareconsumer.Batch
		for _, b := range mine {
			var rs []*shareconsumer.Record
			for _, r := range b.Records() {
				if settled[r.Partition] {
					rs = append(rs, r)
				}
			}
			part, err := b.Split(rs...)
			if err != nil {
				t.Fatal(err)
			}
			gone = append(gone, part)
		}

		// Leaders do say success to each of the stages.
		var codes []int16
		f := w.injectStage(1<<30, func(broker.Request) broker.Action {
			return broker.Action{After: func(r kmsg.Response) {
				for _, topic := range r.(*wire.Response).Topics {
					for _, p := range topic.Partitions {
						codes = append(codes, p.ErrorCode)
					}
				}
			}}
		})
		out, err := w.one(ctx, w.producer(t, "slow"), gone, "mine")
		w.SetIntercept(nil)
		if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrStale) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
			t.Errorf("committed what another had settled: %v, %v", out, err)
		}
		if f.fired.Load() < 2 || len(codes) < 2 {
			t.Fatalf("%d requests and codes %v: the case is not what it means to be", f.fired.Load(), codes)
		}
		for _, code := range codes {
			if code != 0 {
				t.Errorf("codes %v: a leader refused, so this tests nothing", codes)
				break
			}
		}
		same(t, "visible", w.visible(ctx, t, "out"), "theirs")
	})
}
