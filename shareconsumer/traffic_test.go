package shareconsumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wiretap sees the share requests of a cluster.
type wiretap struct {
	mu      sync.Mutex
	fetches []*kmsg.ShareFetchRequest
	acks    []*kmsg.ShareAcknowledgeRequest
}

func (c *cluster) tap() *wiretap {
	w := &wiretap{}
	c.SetIntercept(func(r broker.Request) broker.Action {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch req := r.Message().(type) {
		case *kmsg.ShareFetchRequest:
			w.fetches = append(w.fetches, req)
		case *kmsg.ShareAcknowledgeRequest:
			w.acks = append(w.acks, req)
		}
		return broker.Action{}
	})
	return w
}

// seen gives what came since the places given.
func (w *wiretap) seen(fetches, alone int) ([]*kmsg.ShareFetchRequest, []*kmsg.ShareAcknowledgeRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.fetches[fetches:]), slices.Clone(w.acks[alone:])
}

func riding(req *kmsg.ShareFetchRequest) (n int) {
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			n += len(p.AcknowledgementBatches)
		}
	}
	return n
}

// While somebody has records, no fetch parks for long: an acknowledgement would
// have to wait for it. Where nobody has any, it may park as long as it likes.
func TestNoFetchParksWhileRecordsAreOut(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 2, 1)
	w := c.tap()
	m := c.consumer(t, MaxWait(400*time.Millisecond), MaxPollRecords(1))
	b := poll(ctx, t, m)
	from, _ := w.seen(0, 0)
	polls := make(chan *Batch, 1)
	go func() {
		last, err := m.Poll(ctx) // gives the other record
		if err == nil {
			last.AcceptRest()
			err = last.CommitSync(ctx)
		}
		if err != nil {
			t.Error(err)
		}
		last, _ = m.Poll(ctx) // waits
		polls <- last
	}()
	leader := func(reqs []*kmsg.ShareFetchRequest) (waits []time.Duration) {
		for _, r := range reqs {
			if r.ShareSessionEpoch > 0 && len(r.ForgottenTopicsData) == 0 {
				waits = append(waits, time.Duration(r.MaxWaitMillis)*time.Millisecond)
			}
		}
		return waits
	}
	short := func(d time.Duration) bool { return d <= longestShort }
	testkit.Eventually(ctx, t, "short fetches", func() bool {
		reqs, _ := w.seen(len(from), 0)
		n := 0
		for _, d := range leader(reqs) {
			if short(d) {
				n++
			}
		}
		return n >= 4
	})
	b.AcceptRest()
	if err := b.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	at, _ := w.seen(0, 0)
	testkit.Eventually(ctx, t, "a long fetch of every broker", func() bool {
		reqs, _ := w.seen(len(at), 0)
		return len(slices.DeleteFunc(leader(reqs), short)) >= 3
	})
	c.feedTo(ctx, t, 1, 1)
	if last := <-polls; last.Len() != 1 {
		t.Fatalf("%d records", last.Len())
	}
}

// Acknowledgements leave with the next fetch where records keep coming, and do
// not wait for one where nobody polls any more.
func TestAcknowledgementsRideWhereRecordsCome(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	const n = 2000
	for range n / 100 {
		c.feedTo(ctx, t, 100, 1)
	}
	w := c.tap()
	m := c.consumer(t, MaxPollRecords(100))
	for seen := 0; seen < n; {
		b := poll(ctx, t, m)
		seen += b.Len()
		b.AcceptRest()
		if err := b.CommitAsync(); err != nil {
			t.Fatal(err)
		}
	}
	c.waitDone(ctx, t, n) // nobody polls any more
	fetches, _ := w.seen(0, 0)
	rode := 0
	for _, f := range fetches {
		if riding(f) > 0 {
			rode++
		}
	}
	if rode < 3 {
		t.Fatalf("%d fetches carried acknowledgements", rode)
	}
}

// Who polls quickly finds the next records fetched already, by fetches that do
// not park and ask for more and more; who does not is left alone.
func TestFetchingAhead(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	const n = 3000
	for range n / 50 { // batches of 50
		c.feedTo(ctx, t, 50, 1)
	}
	w := c.tap()
	m := c.consumer(t, MaxPollRecords(50))
	seen := poll(ctx, t, m).Len()
	first, _ := w.seen(0, 0)
	for _, f := range first {
		if f.MaxWaitMillis == 0 || f.MaxRecords != 50 {
			t.Fatalf("the first fetches ask for %d records and wait %d ms", f.MaxRecords, f.MaxWaitMillis)
		}
	}
	ahead, most := 0, int32(0)
	for seen < 2000 {
		before, _ := w.seen(0, 0)
		b := poll(ctx, t, m)
		seen += b.Len()
		m.mu.Lock()
		s := b.records[0].lease.s
		due := !s.fetches && s.dry == 0 && s.supply().quick() && s.supply().scarce(s.unpolled)
		m.mu.Unlock()
		if !due {
			continue
		}
		testkit.Eventually(ctx, t, "a fetch ahead, while nobody polls", func() bool {
			fetches, _ := w.seen(len(before), 0)
			return slices.ContainsFunc(fetches, func(f *kmsg.ShareFetchRequest) bool { most = max(most, f.MaxRecords); return f.MaxWaitMillis == 0 })
		})
		ahead++
	}
	if ahead == 0 || most <= 100 {
		t.Fatalf("%d fetches ahead, the largest asked for %d records", ahead, most)
	}
	testkit.Eventually(ctx, t, "enough waits", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return !slices.ContainsFunc(sessionsOf(m), func(s *session) bool { return s.fetches })
	})
	quiet, _ := w.seen(0, 0)
	beats := c.Traffic(keyShareBeat).Requests
	testkit.Eventually(ctx, t, "five heartbeats", func() bool { return c.Traffic(keyShareBeat).Requests > beats+5 })
	if more, _ := w.seen(len(quiet), 0); len(more) > 0 {
		t.Fatalf("%d fetches without a poll", len(more))
	}
}

func sessionsOf(m *Consumer) (out []*session) {
	for _, s := range m.sessions {
		out = append(out, s)
	}
	return out
}

// What was delivered before is never fetched ahead.
func TestRedeliveredIsNotFetchedAhead(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	const n = 1000
	for range n / 50 {
		c.feedTo(ctx, t, 50, 1)
	}
	first := c.consumer(t, MaxPollRecords(n))
	gather(ctx, t, first, n)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	w := c.tap()
	m := c.consumer(t, MaxPollRecords(50))
	for seen := 0; seen < n; {
		b := poll(ctx, t, m)
		if seen += b.Len(); b.Records()[0].DeliveryCount() != 2 {
			t.Fatalf("delivery %d", b.Records()[0].DeliveryCount())
		}
	}
	fetches, _ := w.seen(0, 0)
	for _, f := range fetches {
		if f.MaxWaitMillis == 0 {
			t.Fatal("fetched ahead what was delivered before")
		}
	}
}

// All that is asked for and all that waits is MaxBytes together, but for one
// byte a broker where a poll waits.
func TestBytesAreBoundedOverAllBrokers(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	const n, limit = 3000, 6000
	for range n / 30 {
		c.feed(ctx, t, 30)
	}
	var mu sync.Mutex
	var m *Consumer
	worst, requests := 0, 0
	c.SetIntercept(func(r broker.Request) broker.Action {
		if req, ok := r.Message().(*kmsg.ShareFetchRequest); ok {
			mu.Lock()
			defer mu.Unlock()
			m.mu.Lock()
			defer m.mu.Unlock()
			requests++
			if req.MaxBytes > limit/3 {
				t.Errorf("a fetch asks for %d bytes", req.MaxBytes)
			}
			if req.MaxBytes > 1 {
				worst = max(worst, m.bytes+m.reserved)
			}
		}
		return broker.Action{}
	})
	mu.Lock()
	m = c.consumer(t, MaxBytes(limit), MaxPollRecords(20))
	mu.Unlock()
	for seen := 0; seen < n; {
		b := poll(ctx, t, m)
		seen += b.Len()
		b.AcceptRest()
		if err := b.CommitAsync(); err != nil {
			t.Fatal(err)
		}
	}
	c.waitDone(ctx, t, n)
	mu.Lock()
	defer mu.Unlock()
	const batch = 3000 // more than a batch of the log takes
	if requests < 3 || worst > limit+3*batch {
		t.Fatalf("%d bytes at a time in %d requests, the limit is %d", worst, requests, limit)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bytes != 0 {
		t.Fatalf("%d bytes wait, and no record", m.bytes)
	}
}

// Several bad ranges among thousands fail alone, in requests that are bounded;
// holes that are refused in the same request do not use up the bound.
func TestBadRangesAmongThousands(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	c := startCluster(t, 40*time.Second)
	const n = 4000
	for range n / 200 {
		c.feedTo(ctx, t, 200, 1)
	}
	if err := c.SetGroupConfig("g", map[string]string{"share.partition.max.record.locks": "4000"}); err != nil {
		t.Fatal(err)
	}
	m := c.consumer(t, MaxPollRecords(n))
	rs := gather(ctx, t, m, n)
	if err := m.Drain(ctx); err != nil { // or it may fetch the victims ahead
		t.Fatal(err)
	}
	s := rs[0].lease.s
	var bad []int64
	m.mu.Lock()
	for i := 100; i < n; i += 500 {
		rs[i].verdict = acks.Release
		bad = append(bad, rs[i].Offset)
	}
	for _, o := range bad { // behind the batch's back
		m.plain([]*Record{rs[o]}, false)
	}
	m.mu.Unlock()
	testkit.Eventually(ctx, t, "the victims are available", func() bool {
		_, av, _, _ := c.totals()
		return av == int64(len(bad))
	})
	for i, r := range rs { // no two neighbours alike
		if i%2 == 0 {
			r.Accept()
		} else {
			r.Reject()
		}
	}
	w := c.tap()
	batches := batchesOfRecords(rs)
	m.mu.Lock()
	for _, o := range bad { // refused too, one by one
		s.holes(rs[0].tp(), []acks.Run{{First: o, Last: o, Type: acks.Gap}})
	}
	m.mu.Unlock()
	var errs []error
	for b := range batches {
		errs = append(errs, b.CommitSync(ctx))
	}
	err := errors.Join(errs...)
	re := recordsErrorIn(t, err)
	if !errors.Is(err, kerr.InvalidRecordState) || !slices.Equal(re.Offsets, bad) || re.More != 0 {
		t.Fatalf("want offsets %v alone, got %v", bad, err)
	}
	done, av, ac, _ := c.totals()
	if done != n-int64(len(bad)) || av+ac != int64(len(bad)) {
		t.Fatalf("done %d, available %d, acquired %d", done, av, ac)
	}
	if _, alone := w.seen(0, 0); len(alone) < 2*len(bad) || len(alone) > maxHalves+4*len(bad) {
		t.Fatalf("%d requests for %d bad offsets of %d", len(alone), len(bad), n)
	}
}

// One offset in two queued acknowledgements: the first is taken, the second
// fails, and what stands beside them does not notice.
func TestOneOffsetInTwoAcknowledgements(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 4, 1)
	m := c.consumer(t)
	b := poll(ctx, t, m)
	rs := gatherMore(ctx, t, m, b, 4)
	w := c.tap()
	m.mu.Lock()
	for _, r := range rs {
		r.verdict = acks.Release
	}
	first := m.plain(rs[:2], false) // queued together, before the session looks
	rs[1].verdict = acks.Reject
	second := m.plain(rs[1:3], false)
	third := m.plain(rs[3:], false)
	m.mu.Unlock()
	if err := errors.Join(first.wait(ctx), third.wait(ctx)); err != nil {
		t.Fatalf("%v", err)
	}
	err := second.wait(ctx)
	if re := recordsErrorIn(t, err); !errors.Is(err, sharetxn.ErrStale) || !slices.Equal(re.Offsets, []int64{rs[1].Offset}) || re.More != 0 {
		t.Fatalf("%v", err)
	}
	if _, alone := w.seen(0, 0); len(alone) < 2 || len(alone[0].Topics[0].Partitions) != 1 || !ascending(alone[0].Topics[0].Partitions[0].AcknowledgementBatches) {
		t.Fatalf("%d requests", len(alone))
	}
	if done, av, ac, _ := c.totals(); done != 0 || av != 4 || ac != 0 {
		t.Fatalf("done %d, available %d, acquired %d", done, av, ac)
	}
}

func ascending(bs []kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch) bool {
	for i := range bs {
		if i > 0 && bs[i].FirstOffset <= bs[i-1].LastOffset {
			return false
		}
	}
	return true
}

// gatherMore polls on until n records are there.
func gatherMore(ctx context.Context, t *testing.T, m *Consumer, b *Batch, n int) []*Record {
	t.Helper()
	rs := b.Records()
	if len(rs) < n {
		rs = append(rs, gather(ctx, t, m, n-len(rs))...)
	}
	return rs
}

// What Implicit mode could not accept any more is told, by OnAcknowledged and by
// the poll, once.
func TestImplicitTellsWhatWasLost(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 2, 1)
	results := make(chan AckResult, 10)
	m := c.consumer(t, AcknowledgementMode(Implicit), OnAcknowledged(func(a AckResult) { results <- a }))
	b := poll(ctx, t, m)
	rs := gatherMore(ctx, t, m, b, 1)
	m.mu.Lock()
	m.lose(errors.New("on purpose"), func(*lease) bool { return true })
	m.mu.Unlock()
	_, err := m.Poll(ctx)
	if re := recordsErrorIn(t, err); !errors.Is(err, sharetxn.ErrStale) || re.Offsets[0] != rs[0].Offset {
		t.Fatalf("Poll: %v", err)
	}
	if a := <-results; !errors.Is(a.Err, sharetxn.ErrStale) || a.Batches[0].FirstOffset != rs[0].Offset {
		t.Fatalf("OnAcknowledged was told %+v", a)
	}
	if done, _, _, _ := c.totals(); done != 0 {
		t.Fatalf("%d offsets are done", done)
	}
	c.feedTo(ctx, t, 1, 1)
	poll(ctx, t, m) // told once
}

// A session that is begun anew takes with it what it still brought: ending it
// gives that to others.
func TestStartingOverDropsWhatWasFetched(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 3, 1)
	m := c.consumer(t, MaxPollRecords(1))
	b := poll(ctx, t, m)
	m.mu.Lock()
	s := b.records[0].lease.s
	s.restart = true
	s.signal()
	m.mu.Unlock()
	testkit.Eventually(ctx, t, "the session was begun anew", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return !s.restart && errors.Is(b.records[0].lease.lost, errRestarted) && len(s.buffer) == 0 && s.unpolled == 0
	})
	b.AcceptRest()
	if err := b.CommitSync(ctx); !errors.Is(err, sharetxn.ErrStale) {
		t.Fatalf("committed what the session held: %v", err)
	}
	for seen := 0; seen < 3; { // all of them again
		again := poll(ctx, t, m)
		seen += again.Len()
		again.AcceptRest()
		if err := again.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c.waitDone(ctx, t, 3)
}

// Brokers of Kafka 4.1 know no renewals: none is sent, and who asks is told.
func TestOldBrokersAreNotAskedToRenew(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startClusterWith(t, 20*time.Second, func(cfg *broker.Config) { cfg.MaxVersions = map[int16]int16{keyFetch: 1, keyAcknowledge: 1} })
	c.feedTo(ctx, t, 2, 1)
	w := c.tap()
	m := c.consumer(t)
	b := poll(ctx, t, m)
	before := b.Deadline()
	if err := b.Renew(ctx); !errors.Is(err, kerr.UnsupportedVersion) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable || !b.Deadline().Equal(before) {
		t.Fatalf("Renew: %v", err)
	}
	b.AcceptRest()
	if err := b.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	if _, alone := w.seen(0, 0); len(alone) == 0 || slices.ContainsFunc(alone, func(r *kmsg.ShareAcknowledgeRequest) bool { return r.Version != 1 || r.IsRenewAck }) {
		t.Fatalf("%d requests", len(alone))
	}
}

// A fetch that parks for long does not cost Close what is queued.
func TestCloseSendsWhatIsQueuedBehindAFetch(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, time.Minute)
	c.feedTo(ctx, t, 2, 1)
	m := c.consumer(t, MaxWait(time.Minute), CloseTimeout(2*time.Second))
	b := poll(ctx, t, m)
	rs := gatherMore(ctx, t, m, b, 2)
	for _, r := range rs {
		r.Accept()
	}
	for b := range batchesOfRecords(rs) {
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c.feedTo(ctx, t, 1, 1)
	last := poll(ctx, t, m)
	polls := make(chan error, 1)
	m.mu.Lock()
	m.sessions[rs[0].lease.s.node].out = 0 // or the fetch would not park for long
	m.mu.Unlock()
	go func() { _, err := m.Poll(ctx); polls <- err }()
	testkit.Eventually(ctx, t, "a fetch is parked", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return rs[0].lease.s.fetches
	})
	last.AcceptRest()
	if err := last.CommitAsync(); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-polls; !errors.Is(err, sharetxn.ErrClosed) {
		t.Fatalf("Poll: %v", err)
	}
	if done, av, ac, _ := c.totals(); done != 3 || av+ac != 0 {
		t.Fatalf("done %d, available %d, acquired %d", done, av, ac)
	}
}
