package ledger_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// open writes entries of one transaction for partition 0 of a topic, and leaves it
// open.
func (w *world) open(ctx context.Context, t *testing.T, id, topic string, ranges ...entry.Range) *kgo.Client {
	t.Helper()
	p, err := kgo.NewClient(kgo.SeedBrokers(w.b.Seeds()...), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, r := range ranges {
		e := entry.Entry{Generation: w.states(ctx, t).Number(), TransactionalID: id, Nonce: [16]byte{1}, TopicID: w.b.TopicID(topic), Ranges: []entry.Range{r}}
		value, err := e.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.ProduceSync(ctx, &kgo.Record{Topic: ledger.TopicName(group), Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// did is open, and then its end.
func (w *world) did(ctx context.Context, t *testing.T, end kgo.TransactionEndTry, topic string, ranges ...entry.Range) {
	t.Helper()
	if err := w.open(ctx, t, "did", topic, ranges...).EndTransaction(ctx, end); err != nil {
		t.Fatal(err)
	}
}

// Status counts what is open, what is committed and needed, and not the rest; and
// says how large and old it all is. Truncate then leaves just what counts.
func TestStatusAndTruncate(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := ensured(ctx, t, broker.Config{Brokers: 3, Topics: map[string]int32{"a": 2}}, "a")
	began := time.Now().Add(-time.Minute)
	w.feed(ctx, t, "a", 0, 20)
	w.did(ctx, t, kgo.TryCommit, "a", entry.Range{First: 0, Last: 3}) // will be below the start
	w.did(ctx, t, kgo.TryAbort, "a", entry.Range{First: 9, Last: 9})
	w.begun(ctx, t, "a", 4)
	w.did(ctx, t, kgo.TryCommit, "a", entry.Range{First: 4, Last: 5}, entry.Range{First: 7, Last: 7})
	w.open(ctx, t, "late", "a", entry.Range{First: 10, Last: 12})
	s, err := ledger.ReadStatus(ctx, w.cl, group)
	if err != nil {
		t.Fatal(err)
	}
	if s.Generation != 1 || s.Guarantee != ledger.Ledger || s.Problem != "" || s.Command != "" || s.Entries != 3 || s.Open != 1 || s.AboveStart != 2 || len(s.Partitions) != 2 {
		t.Errorf("%+v", s)
	}
	if p := s.Partitions[0]; p.OldestOpenTransactionalID != "late" || p.OldestOpen != 8 || p.Records != 9 || p.Generation != 1 || p.Open != 1 {
		t.Errorf("partition 0: %+v", p)
	}
	if p := s.Partitions[1]; p.OldestOpen != -1 || p.Records != 1 || p.Entries != 0 {
		t.Errorf("partition 1: %+v", p)
	}
	if s.Records != 10 || s.Bytes < 100 || s.Oldest.Before(began) || s.Oldest.After(time.Now().Add(time.Minute)) {
		t.Errorf("%d records, %d bytes, since %v", s.Records, s.Bytes, s.Oldest)
	}
	deleted, err := ledger.Truncate(ctx, w.cl, group)
	if err != nil || deleted != 5 {
		t.Errorf("deleted %d, %v", deleted, err)
	}
	after, err := ledger.ReadStatus(ctx, w.cl, group)
	if err != nil || after.Entries != 3 || after.Open != 1 || after.AboveStart != 2 || after.Records != s.Records+1-deleted || after.Generation != 1 || after.Problem != "" {
		t.Errorf("after truncation: %+v, %v", after, err)
	}
	if deleted, err := ledger.Truncate(ctx, w.cl, group); err != nil || deleted != 0 {
		t.Errorf("again: deleted %d, %v", deleted, err)
	}
}

// A ledger that nobody can work with is told, and what mends it; it is not
// truncated.
func TestStatusOfASpoiltLedger(t *testing.T) {
	for name, tc := range map[string]struct {
		begin []entry.Generation
		want  error
		says  string
	}{
		"nothing":        {[]entry.Generation{{}, {}}, ledger.ErrNoGeneration, "sharetxn ledger create"},
		"widened":        {[]entry.Generation{active(1, ledger.Ledger), {}}, ledger.ErrNoGeneration, "sharetxn ledger create"},
		"resetting":      {[]entry.Generation{resetting(2), resetting(2)}, ledger.ErrResetting, "sharetxn ledger reset"},
		"mixed":          {[]entry.Generation{active(1, ledger.Ledger), active(2, ledger.Ledger)}, ledger.ErrMixed, "sharetxn ledger reset"},
		"two guarantees": {[]entry.Generation{active(1, ledger.Ledger), active(1, ledger.Ledger), active(1, ledger.Staged)}, ledger.ErrMixed, "sharetxn ledger reset"},
	} {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, broker.Config{Topics: map[string]int32{ledger.TopicName(group): 2}})
		for i, g := range tc.begin {
			if g != (entry.Generation{}) {
				w.write(ctx, t, g, int32(min(i, 1)))
			}
		}
		s, err := ledger.ReadStatus(ctx, w.cl, group)
		if err != nil || !strings.Contains(s.Problem, tc.want.Error()) || !strings.HasPrefix(s.Command, tc.says) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if deleted, err := ledger.Truncate(ctx, w.cl, group); deleted != 0 || !errors.Is(err, tc.want) || !sharetxn.IsFatal(err) {
			t.Errorf("%s: truncated: %d, %v", name, deleted, err)
		}
	}
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, broker.Config{})
	if _, err := ledger.ReadStatus(ctx, w.cl, group); !errors.Is(err, ledger.ErrMissing) || !strings.Contains(err.Error(), "sharetxn ledger create") {
		t.Errorf("none: %v", err)
	}
	if _, err := ledger.Truncate(ctx, w.cl, group); !errors.Is(err, ledger.ErrMissing) {
		t.Errorf("none: %v", err)
	}
}

// Bytes that brokers do not tell are told as such, not as none.
func TestStatusWithoutBytes(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := ensured(ctx, t, broker.Config{Topics: map[string]int32{"a": 2}}, "a")
	refused := 0
	w.b.SetIntercept(func(r broker.Request) broker.Action {
		m, ok := r.Message().(*kmsg.DescribeLogDirsRequest)
		if !ok {
			return broker.Action{}
		}
		refused++
		resp := m.ResponseKind().(*kmsg.DescribeLogDirsResponse)
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return broker.Action{Answer: resp}
	})
	s, err := ledger.ReadStatus(ctx, w.cl, group)
	if err != nil || s.Bytes != -1 || s.Partitions[1].Bytes != -1 || s.Records != 2 || refused == 0 {
		t.Errorf("%+v, %v (%d refused)", s, err, refused)
	}
}

// A newer library's record stops the tools too.
func TestStatusOfANewerLedger(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := ensured(ctx, t, broker.Config{Topics: map[string]int32{"a": 1}}, "a")
	if err := w.raw.ProduceSync(ctx, &kgo.Record{Topic: ledger.TopicName(group), Value: []byte{200, 1}}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if s, err := ledger.ReadStatus(ctx, w.cl, group); !errors.Is(err, entry.ErrVersion) || !sharetxn.IsFatal(err) {
		t.Errorf("status %+v, %v", s, err)
	}
	if err := ledger.Reset(ctx, w.cl, group, time.Time{}); !errors.Is(err, entry.ErrVersion) || !sharetxn.IsFatal(err) {
		t.Errorf("reset: %v", err)
	}
	got, err := ledger.Check(ctx, w.cl, group, []string{"a"})
	if err != nil || len(got) != 1 || got[0].Rule != "generation" || !strings.Contains(got[0].Command, "update sharetxn") {
		t.Errorf("check %+v, %v", got, err)
	}
}
