package ledger_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// at is the time of the nth record of a partition.
func at(n int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(n)*1000) }

// timed writes n records, one a second, into a partition.
func (w *world) timed(ctx context.Context, t *testing.T, topic string, partition int32, n int) {
	t.Helper()
	for i := range n {
		if err := w.raw.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: partition, Timestamp: at(i), Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// accept has a member do n records, and leave.
func (w *world) accept(ctx context.Context, t *testing.T, n int, topics ...string) {
	t.Helper()
	member := w.member(ctx, t, topics...)
	for done := 0; done < n; {
		b, err := member.Poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b.AcceptRest()
		done += b.Len()
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := member.Close(); err != nil {
		t.Fatal(err)
	}
}

// begun has the group begin at a start in partition 0 of a topic.
func (w *world) begun(ctx context.Context, t *testing.T, topic string, start int64) {
	t.Helper()
	o := make(kadm.Offsets)
	o.AddOffset(topic, 0, start, -1)
	altered, err := w.adm.AlterShareGroupOffsets(ctx, group, o)
	if err == nil {
		err = altered.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// starts are the group's, by topic and partition.
func (w *world) starts(ctx context.Context, t *testing.T) map[string]map[int32]int64 {
	t.Helper()
	described, err := w.adm.DescribeShareGroupOffsets(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]map[int32]int64)
	for name, parts := range described[group].Offsets {
		out[name] = make(map[int32]int64)
		for p, o := range parts {
			out[name][p] = o.StartOffset
		}
	}
	return out
}

func same(a, b map[string]map[int32]int64) bool {
	return maps.EqualFunc(a, b, func(a, b map[int32]int64) bool { return maps.Equal(a, b) })
}

// A reset moves all partitions of all topics of the group, also those that it has
// not begun, and puts the next generation in force in every partition.
func TestReset(t *testing.T) {
	for name, tc := range map[string]struct {
		to   time.Time
		want map[string]map[int32]int64
	}{
		"beginning": {time.Time{}, map[string]map[int32]int64{"a": {0: 0, 1: 0}, "b": {0: 0, 1: 0, 2: 0}}},
		"end":       {time.Now().AddDate(1, 0, 0), map[string]map[int32]int64{"a": {0: 10, 1: 0}, "b": {0: 0, 1: 6, 2: 0}}},
		"a time":    {at(4).Add(-time.Millisecond), map[string]map[int32]int64{"a": {0: 4, 1: 0}, "b": {0: 0, 1: 4, 2: 0}}},
		"past them": {at(8), map[string]map[int32]int64{"a": {0: 8, 1: 0}, "b": {0: 0, 1: 6, 2: 0}}},
	} {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := ensured(ctx, t, broker.Config{Brokers: 3, Topics: map[string]int32{"a": 2, "b": 3, "other": 1}}, "a", "b")
		w.timed(ctx, t, "a", 0, 10)
		w.timed(ctx, t, "b", 1, 6)
		w.accept(ctx, t, 16, "a", "b")
		if err := ledger.Reset(ctx, w.cl, group, tc.to); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := w.starts(ctx, t); !same(got, tc.want) {
			t.Errorf("%s: starts %v, want %v", name, got, tc.want)
		}
		if got := w.generations(ctx, t); !slices.Equal(got, slices.Repeat([]entry.Generation{active(2, ledger.Ledger)}, 3)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A reset to the end stays before a transaction that is under way.
func TestResetToTheEndKeepsWhatIsOpen(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := ensured(ctx, t, broker.Config{Topics: map[string]int32{"a": 1}}, "a")
	w.feed(ctx, t, "a", 0, 3)
	w.accept(ctx, t, 3, "a")
	p, err := kgo.NewClient(kgo.SeedBrokers(w.b.Seeds()...), kgo.TransactionalID("writer"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := p.ProduceSync(ctx, &kgo.Record{Topic: "a", Value: []byte("open")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	w.feed(ctx, t, "a", 0, 2)
	if err := ledger.Reset(ctx, w.cl, group, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := w.starts(ctx, t); got["a"][0] != 3 {
		t.Errorf("starts %v, want the open record's offset, 3", got)
	}
	if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
}

// A group without offsets, or one that never was, only gets a new generation; so
// does one whose ledger is spoiled in any way that a reset mends.
func TestResetMends(t *testing.T) {
	for name, begin := range map[string][]entry.Generation{
		"nothing wrong":   {active(1, ledger.Ledger), active(1, ledger.Ledger)},
		"half a reset":    {resetting(2), active(1, ledger.Ledger)},
		"nearly a reset":  {active(2, ledger.Ledger), resetting(2)},
		"half of nothing": {{}, {}},
	} {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, broker.Config{Topics: map[string]int32{"a": 2, ledger.TopicName(group): 2}})
		for p, g := range begin {
			if g != (entry.Generation{}) {
				w.write(ctx, t, g, int32(p))
			}
		}
		before := w.states(ctx, t).Number()
		if err := ledger.Reset(ctx, w.cl, group, time.Time{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := w.generations(ctx, t); !slices.Equal(got, slices.Repeat([]entry.Generation{active(before+1, ledger.Ledger)}, 2)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, broker.Config{Topics: map[string]int32{"a": 2, ledger.TopicName(group): 2}})
	w.write(ctx, t, active(3, ledger.Staged), 0, 1)
	if err := ledger.Reset(ctx, w.cl, group, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if got := w.generations(ctx, t); !slices.Equal(got, slices.Repeat([]entry.Generation{active(4, ledger.Staged)}, 2)) {
		t.Errorf("a group under another guarantee: %+v", got)
	}
}

// Whatever a reset is cut at leaves a ledger that is not usable, or as it was; and
// the next one completes it.
func TestResetCut(t *testing.T) {
	const (
		produce = 0
		alter   = 91
	)
	for name, tc := range map[string]struct {
		key   int16
		nth   int32 // of its kind since the reset began
		left  error
		start int64 // of the source, afterwards
	}{
		"before anything":     {produce, 1, nil, 5},
		"in the first record": {produce, 2, ledger.ErrResetting, 5},
		"before the offsets":  {alter, 1, ledger.ErrResetting, 5},
		"before it is active": {produce, 3, ledger.ErrResetting, 0},
		"half of it active":   {produce, 4, ledger.ErrMixed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testkit.Deadline(t, 60*time.Second)
			w := ensured(ctx, t, broker.Config{Brokers: 2, Topics: map[string]int32{"a": 2}}, "a")
			w.feed(ctx, t, "a", 0, 5)
			w.begun(ctx, t, "a", 5)
			short, cancel := context.WithCancel(ctx)
			var seen atomic.Int32
			w.b.SetIntercept(func(r broker.Request) broker.Action {
				if r.Key != tc.key || seen.Add(1) < tc.nth {
					return broker.Action{}
				}
				cancel()
				return broker.Action{LoseRequest: true}
			})
			err := ledger.Reset(short, w.cl, group, time.Time{})
			if err == nil || seen.Load() < tc.nth {
				t.Errorf("%v, after %d", err, seen.Load())
			}
			w.b.SetIntercept(nil)
			testkit.Eventually(ctx, t, "what is under way arrives", func() bool {
				_, err := w.states(ctx, t).Current()
				return errors.Is(err, tc.left) && (err == nil) == (tc.left == nil)
			})
			if got := w.starts(ctx, t)["a"][0]; got != tc.start {
				t.Errorf("start %d, want %d", got, tc.start)
			}
			if err := ledger.Reset(ctx, w.cl, group, time.Time{}); err != nil {
				t.Errorf("again: %v", err)
			}
			current, err := w.states(ctx, t).Current()
			if err != nil || current.Phase != entry.Active || current.Number < 2 || w.starts(ctx, t)["a"][0] != 0 {
				t.Errorf("in the end %+v, %v, starts %v", current, err, w.starts(ctx, t))
			}
		})
	}
}

// A group with members is left alone, also by a member that comes in between.
func TestResetBesideMembers(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := ensured(ctx, t, broker.Config{Topics: map[string]int32{"a": 1}}, "a")
	w.feed(ctx, t, "a", 0, 5)
	member := w.member(ctx, t, "a")
	w.joined(ctx, t, member)
	if err := ledger.Reset(ctx, w.cl, group, time.Time{}); !errors.Is(err, ledger.ErrGroupNotEmpty) || !strings.Contains(err.Error(), member.ShareGroupMetadata().MemberID()) {
		t.Errorf("with a member: %v", err)
	}
	if got := w.generations(ctx, t); !slices.Equal(got, []entry.Generation{active(1, ledger.Ledger)}) {
		t.Errorf("%+v", got)
	}
	if err := member.Close(); err != nil {
		t.Fatal(err)
	}
	w.b.SetIntercept(func(r broker.Request) broker.Action {
		m, ok := r.Message().(*kmsg.AlterShareGroupOffsetsRequest)
		if !ok {
			return broker.Action{}
		}
		resp := m.ResponseKind().(*kmsg.AlterShareGroupOffsetsResponse)
		resp.ErrorCode = kerr.NonEmptyGroup.Code
		return broker.Action{Answer: resp}
	})
	w.accept(ctx, t, 5, "a")
	if err := ledger.Reset(ctx, w.cl, group, time.Time{}); !errors.Is(err, ledger.ErrGroupNotEmpty) || !strings.Contains(err.Error(), "run it again") {
		t.Errorf("with one that came in between: %v", err)
	}
	w.b.SetIntercept(nil)
	if err := ledger.Reset(ctx, w.cl, group, time.Time{}); err != nil {
		t.Errorf("without: %v", err)
	}
}

// Two resets at once: whoever is not the last in force is told so.
func TestResetBesideAnother(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := ensured(ctx, t, broker.Config{Topics: map[string]int32{"a": 1}}, "a")
	w.feed(ctx, t, "a", 0, 5)
	w.accept(ctx, t, 5, "a")
	second, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(w.b.Seeds()...)))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	other := false
	w.b.SetIntercept(func(r broker.Request) broker.Action {
		if _, ok := r.Message().(*kmsg.AlterShareGroupOffsetsRequest); !ok || other {
			return broker.Action{}
		}
		other = true
		return broker.Action{Before: func() {
			if err := ledger.Reset(ctx, second, group, time.Time{}); err != nil {
				t.Errorf("the other: %v", err)
			}
		}}
	})
	if err := ledger.Reset(ctx, w.cl, group, time.Time{}); !errors.Is(err, ledger.ErrChanged) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable || !other {
		t.Errorf("%v (the other ran: %v)", err, other)
	}
	if got := w.generations(ctx, t); !slices.Equal(got, []entry.Generation{active(3, ledger.Ledger)}) {
		t.Errorf("%+v", got)
	}
}

func TestResetMistakes(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, broker.Config{Topics: map[string]int32{"a": 1}})
	if err := ledger.Reset(ctx, w.cl, group, time.Time{}); !errors.Is(err, ledger.ErrMissing) || !sharetxn.IsFatal(err) || !strings.Contains(err.Error(), "sharetxn ledger create") {
		t.Errorf("no ledger: %v", err)
	}
	if err := ledger.Reset(ctx, w.cl, "", time.Time{}); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
		t.Errorf("no group: %v", err)
	}
}
