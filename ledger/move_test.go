package ledger_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	keyListOffsets = 2
	keyShareFetch  = 78
)

func (w *world) lag(ctx context.Context, t *testing.T, topic string) int64 {
	t.Helper()
	described, err := w.adm.DescribeShareGroupOffsets(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	return described[group].Offsets[topic][0].Lag
}

// What was done and not acknowledged is acknowledged by the move; what was not done
// comes again, one delivery later, and the group's delivery limit is as before.
func TestMoveSettlesWhatIsDone(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := ensured(ctx, t, broker.Config{Brokers: 2, Topics: map[string]int32{"a": 2, "b": 1}}, "a", "b")
	if err := groupconfig.Set(ctx, w.cl, group, groupconfig.DeliveryCountLimit(4)); err != nil {
		t.Fatal(err)
	}
	w.feed(ctx, t, "a", 0, 10)
	w.feed(ctx, t, "a", 1, 10) // nothing was done of these
	w.feed(ctx, t, "b", 0, 10)
	w.did(ctx, t, kgo.TryCommit, "a", entry.Range{First: 0, Last: 2}, entry.Range{First: 5, Last: 5})
	w.did(ctx, t, kgo.TryAbort, "a", entry.Range{First: 3, Last: 4})
	got, err := ledger.Move(ctx, w.cl, group, ledger.Staged)
	want := ledger.Moved{From: ledger.Ledger, To: ledger.Staged, Accepted: 4, Released: 6}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v, want %+v", got, err, want)
	}
	if got := w.generations(ctx, t); !slices.Equal(got, slices.Repeat([]entry.Generation{active(2, ledger.Staged)}, 2)) {
		t.Errorf("%+v", got)
	}
	if got := w.lag(ctx, t, "a"); got != 6 {
		t.Errorf("lag %d, want 6", got)
	}
	member := w.member(ctx, t, "a", "b")
	var offsets []int64 // of a-0
	for n := 0; n < 26; {
		b, err := member.Poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		n += b.Len()
		for _, r := range b.Records() {
			want := int32(1)
			if r.Topic == "a" && r.Partition == 0 {
				offsets, want = append(offsets, r.Offset), 2
			}
			if r.DeliveryCount() != want {
				t.Errorf("%s-%d, offset %d: delivery %d, want %d", r.Topic, r.Partition, r.Offset, r.DeliveryCount(), want)
			}
		}
	}
	if !slices.Equal(offsets, []int64{3, 4, 6, 7, 8, 9}) {
		t.Errorf("delivered then: %v", offsets)
	}
	configs, err := groupconfig.Describe(ctx, w.cl, group)
	if err != nil || configs.DeliveryCountLimit != 4 {
		t.Errorf("limit %d, %v", configs.DeliveryCountLimit, err)
	}
}

// A group that has acknowledged all is moved without a member; one that has, but has
// more to do, after its lock: nobody can hold what is done longer.
func TestMoveWhereAllIsAcknowledged(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := ensured(ctx, t, broker.Config{Topics: map[string]int32{"a": 1}}, "a")
	if err := groupconfig.Set(ctx, w.cl, group, groupconfig.LockDuration(time.Second)); err != nil {
		t.Fatal(err)
	}
	w.feed(ctx, t, "a", 0, 5)
	w.did(ctx, t, kgo.TryCommit, "a", entry.Range{First: 0, Last: 4})
	w.accept(ctx, t, 5, "a")
	fetches := w.b.Traffic(keyShareFetch).Requests
	got, err := ledger.Move(ctx, w.cl, group, ledger.AckAfterCommit)
	if want := (ledger.Moved{From: ledger.Ledger, To: ledger.AckAfterCommit}); err != nil || !reflect.DeepEqual(got, want) || w.b.Traffic(keyShareFetch).Requests != fetches {
		t.Errorf("%+v, %v, after %d fetches", got, err, w.b.Traffic(keyShareFetch).Requests-fetches)
	}
	if got, err := ledger.Move(ctx, w.cl, group, ledger.Ledger); err != nil || got.From != ledger.AckAfterCommit {
		t.Errorf("back: %+v, %v", got, err)
	}
	w.feed(ctx, t, "a", 0, 2)
	w.did(ctx, t, kgo.TryCommit, "a", entry.Range{First: 0, Last: 4}) // the start trails what is acknowledged
	got, err = ledger.Move(ctx, w.cl, group, ledger.Staged)
	if want := (ledger.Moved{From: ledger.Ledger, To: ledger.Staged, Released: 2}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("with more to do: %+v, %v, want %+v", got, err, want)
	}
	if got := w.lag(ctx, t, "a"); got != 2 {
		t.Errorf("lag %d, want 2", got)
	}
	if got := w.generations(ctx, t); !slices.Equal(got, []entry.Generation{active(4, ledger.Staged)}) {
		t.Errorf("%+v", got)
	}
}

// A leader that is out of reach has nothing to say of what is acknowledged: the move
// waits until it answers.
func TestMoveWaitsForLeaders(t *testing.T) {
	ctx := testkit.Deadline(t, 2*time.Minute)
	w := ensured(ctx, t, broker.Config{Topics: map[string]int32{"a": 1}}, "a")
	if err := groupconfig.Set(ctx, w.cl, group, groupconfig.LockDuration(time.Second)); err != nil {
		t.Fatal(err)
	}
	w.feed(ctx, t, "a", 0, 4)
	w.did(ctx, t, kgo.TryCommit, "a", entry.Range{First: 0, Last: 2})
	var asked, fetches atomic.Int32
	w.b.SetIntercept(func(r broker.Request) broker.Action {
		switch m := r.Message().(type) {
		case *kmsg.ListOffsetsRequest:
			if m.Topics[0].Topic == "a" && asked.Add(1) <= 1 {
				return broker.Action{LoseRequest: true}
			}
		case *kmsg.ShareFetchRequest:
			if asked.Load() < 2 {
				fetches.Add(1)
				return broker.Action{LoseRequest: true}
			}
		}
		return broker.Action{}
	})
	got, err := ledger.Move(ctx, w.cl, group, ledger.Staged)
	want := ledger.Moved{From: ledger.Ledger, To: ledger.Staged, Accepted: 3, Released: 1}
	if err != nil || !reflect.DeepEqual(got, want) || asked.Load() < 2 || fetches.Load() == 0 {
		t.Errorf("%+v, %v, want %+v; %d fetches were lost", got, err, want, fetches.Load())
	}
}

// A record that had no delivery left is told.
func TestMoveTellsLastDeliveries(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := ensured(ctx, t, broker.Config{Topics: map[string]int32{"a": 1}}, "a")
	w.feed(ctx, t, "a", 0, 2)
	member := w.member(ctx, t, "a")
	for range 9 {
		b, err := member.Poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range b.Records() {
			if r.Offset == 0 {
				r.Release()
			}
		}
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := member.Close(); err != nil {
		t.Fatal(err)
	}
	w.did(ctx, t, kgo.TryCommit, "a", entry.Range{First: 1, Last: 1})
	got, err := ledger.Move(ctx, w.cl, group, ledger.Staged)
	want := ledger.Moved{From: ledger.Ledger, To: ledger.Staged, Accepted: 1, Released: 1, LastDelivery: []ledger.Offset{{Topic: "a", Offset: 0}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// A transaction that is open may yet be done: the move waits for it, and what it
// waited for in vain the next one does.
func TestMoveWaitsForWhatIsOpen(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := ensured(ctx, t, broker.Config{Topics: map[string]int32{"a": 1}}, "a")
	w.feed(ctx, t, "a", 0, 3)
	p := w.open(ctx, t, "late", "a", entry.Range{First: 0, Last: 1})
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	var lists atomic.Int32
	w.b.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key == keyListOffsets && lists.Add(1) == 5 { // the generation was read, the ledger once, and now again
			cancel()
		}
		return broker.Action{}
	})
	_, err := ledger.Move(short, w.cl, group, ledger.Staged)
	w.b.SetIntercept(nil)
	if !errors.Is(err, context.Canceled) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable || !strings.Contains(err.Error(), `["late"]`) || !strings.Contains(err.Error(), "run it again") {
		t.Errorf("open: %v", err)
	}
	if _, err := w.states(ctx, t).Current(); !errors.Is(err, ledger.ErrMoving) {
		t.Errorf("left with %v", err)
	}
	if err := ledger.Ensure(ctx, w.cl, group, []string{"a"}); !sharetxn.IsFatal(err) {
		t.Errorf("Ensure meanwhile: %v", err)
	}
	if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	got, err := ledger.Move(ctx, w.cl, group, ledger.Staged)
	if want := (ledger.Moved{From: ledger.Ledger, To: ledger.Staged, Accepted: 2, Released: 1}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// Whatever a move is cut at, the next completes it, and nothing that is done is done
// again.
func TestMoveCut(t *testing.T) {
	const produce = 0
	for name, tc := range map[string]struct {
		key  int16
		nth  int32
		left error
	}{
		"before anything":     {produce, 1, nil},
		"half of it moving":   {produce, 2, ledger.ErrMoving},
		"before it settles":   {keyShareFetch, 1, ledger.ErrMoving},
		"before it is active": {produce, 3, ledger.ErrMoving},
		"half of it active":   {produce, 4, ledger.ErrMixed},
	} {
		for _, to := range []string{ledger.Staged, ledger.Ledger} {
			t.Run(name+", then to "+to, func(t *testing.T) {
				t.Parallel()
				ctx := testkit.Deadline(t, 60*time.Second)
				w := ensured(ctx, t, broker.Config{Brokers: 2, Topics: map[string]int32{"a": 2}}, "a")
				w.feed(ctx, t, "a", 0, 5)
				w.did(ctx, t, kgo.TryCommit, "a", entry.Range{First: 0, Last: 2})
				short, cancel := context.WithCancel(ctx)
				var seen atomic.Int32
				w.b.SetIntercept(func(r broker.Request) broker.Action {
					if r.Key != tc.key || seen.Add(1) < tc.nth {
						return broker.Action{}
					}
					cancel()
					return broker.Action{LoseRequest: true}
				})
				_, err := ledger.Move(short, w.cl, group, ledger.Staged)
				if err == nil || seen.Load() < tc.nth {
					t.Errorf("%v, after %d", err, seen.Load())
				}
				w.b.SetIntercept(nil)
				testkit.Eventually(ctx, t, "what is under way arrives", func() bool {
					_, err := w.states(ctx, t).Current()
					return errors.Is(err, tc.left) && (err == nil) == (tc.left == nil)
				})
				testkit.Eventually(ctx, t, "the group is empty", func() bool {
					described, err := w.adm.DescribeShareGroups(ctx, group)
					return err == nil && len(described[group].Members) == 0
				})
				got, err := ledger.Move(ctx, w.cl, group, to)
				if err != nil {
					t.Fatalf("%+v, %v", got, err)
				}
				current, err := w.states(ctx, t).Current()
				if err != nil || current.Guarantee != to {
					t.Errorf("%+v, %v", current, err)
				}
				if to == ledger.Ledger && tc.left == nil {
					return // nothing had begun
				}
				if lag := w.lag(ctx, t, "a"); lag != 2 {
					t.Errorf("lag %d, want 2", lag)
				}
			})
		}
	}
}

func TestMoveMistakes(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, broker.Config{Topics: map[string]int32{"a": 1}, OffsetReset: "earliest"})
	if _, err := ledger.Move(ctx, w.cl, group, "exactly once"); sharetxn.ClassOf(err) != sharetxn.ClassUsage || !strings.Contains(err.Error(), "staged") {
		t.Errorf("no guarantee: %v", err)
	}
	if _, err := ledger.Move(ctx, w.cl, group, ledger.Ledger); !errors.Is(err, ledger.ErrMissing) || !strings.Contains(err.Error(), "sharetxn ledger create") {
		t.Errorf("no ledger: %v", err)
	}
	if err := ledger.Ensure(ctx, w.cl, group, []string{"a"}); err != nil {
		t.Fatal(err)
	}
	got, err := ledger.Move(ctx, w.cl, group, ledger.Ledger)
	if want := (ledger.Moved{From: ledger.Ledger, To: ledger.Ledger}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("where it is: %+v, %v", got, err)
	}
	w.feed(ctx, t, "a", 0, 1)
	member := w.member(ctx, t, "a")
	w.joined(ctx, t, member)
	if _, err := ledger.Move(ctx, w.cl, group, ledger.Staged); !errors.Is(err, ledger.ErrGroupNotEmpty) {
		t.Errorf("with a member: %v", err)
	}
	if got := w.generations(ctx, t); !slices.Equal(got, []entry.Generation{active(1, ledger.Ledger)}) {
		t.Errorf("%+v", got)
	}
}
