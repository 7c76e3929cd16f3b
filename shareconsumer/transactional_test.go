package shareconsumer

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/bind"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// These tests play the transaction's part; package producer has the real one.

func settlement(o sharetxn.Outcome, staged bool) bind.Settlement {
	return bind.Settlement{Outcome: uint8(o), Freed: func(acks.TopicIDPartition) bool { return staged }}
}

func transactional(t *testing.T, lock time.Duration, n int, hooks ...sharetxn.Hook) (*cluster, *Consumer, *Batch) {
	t.Helper()
	ctx := testkit.Deadline(t, 40*time.Second)
	c := startCluster(t, lock, hooks...)
	c.feedTo(ctx, t, n, 1)
	m := c.consumer(t, AcknowledgementMode(Transactional), MaxPollRecords(n))
	b := poll(ctx, t, m)
	if b.Len() != n {
		t.Fatalf("a batch of %d, want %d", b.Len(), n)
	}
	return c, m, b
}

// hold takes the batch as a transaction does at Begin.
func hold(t *testing.T, b *Batch) bind.Handle {
	t.Helper()
	h := b.Bind()
	if err := h.Hold(); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHeldBatchRefusesEverythingElse(t *testing.T) {
	ctx := testkit.Deadline(t, 45*time.Second)
	_, _, b := transactional(t, 20*time.Second, 2)
	h := hold(t, b)
	rs := b.Records()
	rs[0].Release()
	rs[1].Release()
	_, split := b.Split(rs[0])
	for name, err := range map[string]error{
		"a second hold": b.Bind().Hold(), "CommitSync": b.CommitSync(ctx), "CommitAsync": b.CommitAsync(), "Split": split,
	} {
		if !errors.Is(err, sharetxn.ErrStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.Forget()
	if b.Len() != 2 {
		t.Fatal("Forget took a held batch apart")
	}
	h.Settle(settlement(sharetxn.Aborted, false))
	if err := b.CommitSync(ctx); err != nil { // verdicts were reset, so there is nothing to send
		t.Fatalf("after the abort: %v", err)
	}
	if _, ok := rs[0].Verdict(); ok {
		t.Fatal("a verdict of the aborted run survived")
	}
	if err := h.Hold(); err != nil {
		t.Fatalf("the batch cannot be held again after an abort: %v", err)
	}
}

func TestFreezeGivesVerdicts(t *testing.T) {
	ctx := testkit.Deadline(t, 45*time.Second)
	c, m, b := transactional(t, 20*time.Second, 3)
	h := b.Bind()
	if h.Group() != "g" || h.Cluster() != any(core.Of(c.cl)) {
		t.Fatalf("group %q", h.Group())
	}
	if err := h.Hold(); err != nil {
		t.Fatal(err)
	}
	rs := b.Records()
	rs[0].Accept()
	rs[1].Reject()
	if _, err := h.Freeze(ctx); !errors.Is(err, sharetxn.ErrUndecided) {
		t.Fatalf("an undecided record was frozen: %v", err)
	} else if re := (*sharetxn.RecordsError)(nil); !errors.As(err, &re) || len(re.Offsets) != 1 || re.Offsets[0] != rs[2].Offset {
		t.Fatalf("%v does not name offset %d alone", err, rs[2].Offset)
	}
	h.Settle(settlement(sharetxn.Aborted, false))

	// aborted: no verdict of that run is left to commit what the next one makes
	if err := h.Hold(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Freeze(ctx); !errors.Is(err, sharetxn.ErrUndecided) {
		t.Fatalf("verdicts of before the abort were frozen: %v", err)
	} else if re := (*sharetxn.RecordsError)(nil); !errors.As(err, &re) || len(re.Offsets) != 3 {
		t.Fatalf("%v does not name all three", err)
	}
	h.Settle(settlement(sharetxn.Aborted, false))

	if err := h.Hold(); err != nil {
		t.Fatal(err)
	}
	rs[0].Accept()
	rs[1].Reject()
	rs[2].Release()
	f, err := h.Freeze(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := &acks.Set{}
	for i, typ := range []acks.Type{acks.Accept, acks.Reject} {
		tp, o := rs[i].Position()
		if err := want.Add(tp, o, typ); err != nil {
			t.Fatal(err)
		}
	}
	got := &acks.Set{}
	for tp, bs := range f.Batches {
		if err := got.AddBatches(tp, bs); err != nil {
			t.Fatal(err)
		}
	}
	if f.Records != 2 || got.Len() != 2 || got.Merge(want) != nil || got.Len() != 2 || f.Member != m.ShareGroupMetadata() {
		t.Fatalf("frozen %+v", f)
	}
	if !f.LockUntil.Equal(earliest(rs[:2])) {
		t.Fatalf("lock until %v", f.LockUntil)
	}
	// committed: the release goes out as a plain one, the staged are not touched
	h.Settle(settlement(sharetxn.Committed, true))
	testkit.Eventually(ctx, t, "the released record is available", func() bool {
		_, av, ac, _ := c.totals()
		return av == 1 && ac == 2
	})
}

// Nothing renews a frozen batch: if its lock has ended when the transaction
// aborts, its records may be anybody's, and are not run again here.
func TestAbortAfterTheLockEnded(t *testing.T) {
	ctx := testkit.Deadline(t, 45*time.Second)
	c, _, b := transactional(t, 500*time.Millisecond, 2)
	h := hold(t, b)
	b.AcceptRest()
	if _, err := h.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(ctx, t, "the locks ended", func() bool {
		_, av, _, _ := c.totals()
		return av == 2
	})
	h.Settle(settlement(sharetxn.Aborted, false))
	if b.Len() != 0 {
		t.Fatalf("%d records are open again", b.Len())
	}
}

type misuses struct {
	mu   sync.Mutex
	seen []sharetxn.Misuse
}

func (m *misuses) OnMisuse(e sharetxn.Misuse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = append(m.seen, e)
}

func TestLateVerdictMakesItAbort(t *testing.T) {
	ctx := testkit.Deadline(t, 45*time.Second)
	told := &misuses{}
	_, _, b := transactional(t, 20*time.Second, 2, told)
	h := hold(t, b)
	b.AcceptRest()
	f, err := h.Freeze(ctx)
	if err != nil || f.Records != 2 || h.Check() != nil {
		t.Fatalf("%+v, %v, %v", f, err, h.Check())
	}
	b.Records()[1].Reject()
	if err := h.Check(); !errors.Is(err, sharetxn.ErrStale) {
		t.Fatalf("a late verdict passed: %v", err)
	}
	told.mu.Lock()
	defer told.mu.Unlock()
	if len(told.seen) != 1 {
		t.Fatalf("hooks saw %v", told.seen)
	}
}

// After an abort, what may have been staged is forgotten: never acknowledged,
// never released. What was not is still ours.
func TestAbortForgetsWhatWasStaged(t *testing.T) {
	ctx := testkit.Deadline(t, 45*time.Second)
	c, m, b := transactional(t, 20*time.Second, 3)
	h := hold(t, b)
	b.AcceptRest()
	b.Records()[0].Release() // never staged, whatever the partition
	if _, err := h.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	h.Settle(settlement(sharetxn.Unknown, true))
	if b.Len() != 3 {
		t.Fatal("an unknown outcome changed the batch")
	}
	h.Settle(settlement(sharetxn.Aborted, true))
	if b.Len() != 1 {
		t.Fatalf("%d records are left, want the released one", b.Len())
	}
	b.Close()
	testkit.Eventually(ctx, t, "only the released record is available", func() bool {
		_, av, ac, _ := c.totals()
		return av == 1 && ac == 2
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.batches) != 0 {
		t.Fatalf("%d batches are not settled", len(m.batches))
	}
}

// A held batch is renewed for far longer than its lock; once it is frozen it
// is renewed no more.
func TestHeldBatchIsRenewedUntilFrozen(t *testing.T) {
	t.Parallel()
	ctx := testkit.Deadline(t, 45*time.Second)
	const lock = 2 * time.Second // a loaded machine must be able to renew in time
	c, _, b := transactional(t, lock, 2)
	h := hold(t, b)
	first := b.Deadline()
	testkit.Eventually(ctx, t, "the deadline moved by a lock and a half", func() bool { return b.Deadline().Sub(first) > lock+lock/2 })
	if done, _, ac, _ := c.totals(); done != 0 || ac != 2 {
		t.Fatalf("done %d, acquired %d", done, ac)
	}
	b.AcceptRest()
	f, err := h.Freeze(ctx)
	if err != nil {
		t.Fatalf("records were lost while held: %v", err)
	}
	testkit.Eventually(ctx, t, "the lock ran out after freezing", func() bool {
		r := b.Records()[0]
		s, _, _, ok := c.StateOf("g", "in", r.Partition, r.Offset)
		return ok && s.String() == "AVAILABLE"
	})
	if time.Now().Before(f.LockUntil) {
		t.Fatalf("the broker's lock ended before the deadline we were given")
	}
}

// A record that was lost makes Freeze fail, and nothing of it is staged.
func TestLostRecordIsNotFrozen(t *testing.T) {
	ctx := testkit.Deadline(t, 45*time.Second)
	c, m, b := transactional(t, 20*time.Second, 2)
	h := hold(t, b)
	b.AcceptRest()
	if code := rawLeave(ctx, t, c, m.ShareGroupMetadata().MemberID()); code != 0 {
		t.Fatalf("leave answered %d", code)
	}
	testkit.Eventually(ctx, t, "the member noticed", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return b.records[0].lease.lost != nil
	})
	if _, err := h.Freeze(ctx); !errors.Is(err, sharetxn.ErrStale) {
		t.Fatalf("froze what was lost: %v", err)
	}
	h.Settle(settlement(sharetxn.Aborted, false))
	if b.Len() != 0 {
		t.Fatalf("%d lost records came back to the batch", b.Len())
	}
}

func TestCloseWhileHeld(t *testing.T) {
	ctx := testkit.Deadline(t, 45*time.Second)
	c, m, b := transactional(t, 20*time.Second, 2)
	h := hold(t, b)
	b.AcceptRest()
	b.Close() // the batch's: no effect while held
	if _, av, ac, _ := c.totals(); av != 0 || ac != 2 {
		t.Fatalf("available %d, acquired %d", av, ac)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if done, _, ac, pe := c.totals(); done != 0 || ac != 0 || pe != 0 {
		t.Fatalf("Close acknowledged or kept something: done %d, acquired %d, pending %d", done, ac, pe)
	}
	if _, err := h.Freeze(ctx); !errors.Is(err, sharetxn.ErrClosed) {
		t.Fatalf("Freeze after Close: %v", err)
	}
	h.Settle(settlement(sharetxn.Aborted, false))
}

func TestPollNamesForgottenVerdicts(t *testing.T) {
	ctx := testkit.Deadline(t, 45*time.Second)
	c, m, b := transactional(t, 20*time.Second, 2)
	b.Records()[0].Accept()
	for range 2 {
		_, err := m.Poll(ctx)
		var re *sharetxn.RecordsError
		if sharetxn.ClassOf(err) != sharetxn.ClassUsage || !errors.As(err, &re) || re.Offsets[0] != b.Records()[0].Offset {
			t.Fatalf("Poll with a verdict that no transaction took: %v", err)
		}
	}
	b.Close()
	if _, err := m.Poll(ctx); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
		t.Fatalf("a batch closed with verdicts is told once: %v", err)
	}
	poll(ctx, t, m)
	if done, _, _, _ := c.totals(); done != 0 {
		t.Fatal("the verdict went out plainly")
	}
	if err := b.CommitSync(ctx); !errors.Is(err, sharetxn.ErrStale) {
		t.Fatalf("CommitSync of a closed batch: %v", err)
	}
}

func TestPlainAcknowledgementsAreRefused(t *testing.T) {
	ctx := testkit.Deadline(t, 45*time.Second)
	c, _, b := transactional(t, 20*time.Second, 2)
	rs := b.Records()
	rs[0].Accept()
	rs[1].Release()
	if err := b.CommitSync(ctx); !errors.Is(err, sharetxn.ErrMode) {
		t.Fatalf("CommitSync: %v", err)
	}
	if err := b.CommitAsync(); !errors.Is(err, sharetxn.ErrMode) {
		t.Fatalf("CommitAsync: %v", err)
	}
	rs[0].Release()
	if err := b.CommitSync(ctx); err != nil { // releases stay plain
		t.Fatal(err)
	}
	if done, av, _, _ := c.totals(); done != 0 || av != 2 {
		t.Fatalf("done %d, available %d", done, av)
	}
}

func TestClaim(t *testing.T) {
	ctx := testkit.Deadline(t, 45*time.Second)
	c, m, b := transactional(t, 20*time.Second, 3)
	owner, ok := core.Of(c.cl).Owner("g", m.ShareGroupMetadata().MemberID())
	if !ok {
		t.Fatal("the consumer is not registered")
	}
	rs := b.Records()
	tp, first := rs[0].Position()
	one := func(first, last int64, typ acks.Type) map[acks.TopicIDPartition][]acks.AcknowledgementBatch {
		return map[acks.TopicIDPartition][]acks.AcknowledgementBatch{tp: {{FirstOffset: first, LastOffset: last, Types: []acks.Type{typ}}}}
	}
	for name, c := range map[string]struct {
		batches map[acks.TopicIDPartition][]acks.AcknowledgementBatch
		class   sharetxn.Class
	}{
		"not held":        {one(first+100, first+101, acks.Accept), sharetxn.ClassAbortable},
		"a huge range":    {one(first, first+1<<40, acks.Accept), sharetxn.ClassAbortable},
		"partly held":     {one(first, first+3, acks.Accept), sharetxn.ClassAbortable},
		"release":         {one(first, first, acks.Release), sharetxn.ClassUsage},
		"negative":        {one(-1, first, acks.Accept), sharetxn.ClassUsage},
		"inverted":        {one(first+1, first, acks.Accept), sharetxn.ClassUsage},
		"no batch at all": {map[acks.TopicIDPartition][]acks.AcknowledgementBatch{tp: nil}, sharetxn.ClassUsage},
	} {
		if _, err := owner.Claim(c.batches); err == nil || sharetxn.ClassOf(err) != c.class {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b.Len() != 3 {
		t.Fatal("a refused claim took records")
	}
	h, err := owner.Claim(one(first, first, acks.Reject))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Claim(one(first, first, acks.Accept)); !errors.Is(err, sharetxn.ErrStale) {
		t.Fatalf("claimed twice: %v", err)
	}
	f, err := h.Freeze(ctx)
	if err != nil || f.Records != 1 || b.Len() != 2 {
		t.Fatalf("%+v, %v; %d left", f, err, b.Len())
	}
}

// An aborted claim gives its records back to the batch they came from; if that
// is over they are released at once, since nobody could decide them.
func TestAbortedClaim(t *testing.T) {
	ctx := testkit.Deadline(t, 45*time.Second)
	c, m, b := transactional(t, 20*time.Second, 3)
	claim := func(rs []*Record) bind.Handle {
		t.Helper()
		set, err := acks.FromRecords(rs, acks.Accept)
		if err != nil {
			t.Fatal(err)
		}
		h, err := m.Claim(set.Map())
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := claim(b.Records()[:1])
	if b.Len() != 2 {
		t.Fatalf("%d records are left", b.Len())
	}
	h.Settle(settlement(sharetxn.Aborted, false))
	rs := b.Records()
	if len(rs) != 3 || rs[0].Offset > rs[1].Offset || rs[1].Offset > rs[2].Offset {
		t.Fatalf("%d records came back", len(rs))
	}
	h = claim(rs) // the batch is empty now, and so over
	if _, _, ac, _ := c.totals(); ac != 3 {
		t.Fatalf("acquired %d", ac)
	}
	h.Settle(settlement(sharetxn.Aborted, false))
	testkit.Eventually(ctx, t, "all are available", func() bool {
		done, av, ac, _ := c.totals()
		return done == 0 && av == 3 && ac == 0
	})
}

// A batch that was offered to a transaction which then could not begin is not
// forgotten: nobody is accused, and it comes back.
func TestOfferedIsNotForgotten(t *testing.T) {
	ctx := testkit.Deadline(t, 45*time.Second)
	hook := &misuses{}
	c, m, b := transactional(t, 20*time.Second, 2, hook)
	b.AcceptRest()
	b.Bind().Offer()
	b.Close()
	again := 0
	for again < 2 {
		next, err := m.Poll(ctx)
		if err != nil {
			t.Fatalf("Poll after an offer that was not taken: %v", err)
		}
		again += next.Len()
	}
	hook.mu.Lock()
	defer hook.mu.Unlock()
	if len(hook.seen) != 0 {
		t.Errorf("hooks saw %v", hook.seen)
	}
	if done, _, _, _ := c.totals(); done != 0 {
		t.Errorf("%d records are done", done)
	}
}
