package shareconsumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// onAnswers lets fn change every answer on a key, and counts those it did.
func (c *cluster) onAnswers(key int16, fn func(kmsg.Response) bool) *atomic.Int32 {
	var done atomic.Int32
	c.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key != key {
			return broker.Action{}
		}
		return broker.Action{After: func(resp kmsg.Response) {
			if fn(resp) {
				done.Add(1)
			}
		}}
	})
	return &done
}

// A partition that an answer names twice, refused and taken, was refused: its
// records are not told to be acknowledged. The partition beside it is.
func TestRefusedAndTakenIsRefused(t *testing.T) {
	for name, codes := range map[string][2]int16{
		"refused first": {kerr.UnknownServerError.Code, 0},
		"taken first":   {0, kerr.UnknownServerError.Code},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			c := startClusterWith(t, 20*time.Second, func(cfg *broker.Config) { cfg.Brokers = 1 })
			c.feedTo(ctx, t, 2, 2)
			m := c.consumer(t)
			forged := c.onAnswers(keyShareAck, func(resp kmsg.Response) bool {
				r := resp.(*kmsg.ShareAcknowledgeResponse)
				for i := range r.Topics {
					ps := r.Topics[i].Partitions
					for j := range ps {
						if ps[j].Partition != 0 {
							continue
						}
						twin := ps[j]
						ps[j].ErrorCode, twin.ErrorCode = codes[0], codes[1]
						r.Topics[i].Partitions = append(ps, twin)
						return true
					}
				}
				return false
			})
			var errs []error
			for n := 0; n < 2; {
				b := poll(ctx, t, m)
				n += b.Len()
				b.AcceptRest()
				errs = append(errs, b.CommitSync(ctx))
			}
			err := errors.Join(errs...)
			if e, ok := errors.AsType[*sharetxn.Error](err); !ok || e.Partition != 0 || e.Class != sharetxn.ClassUnknown {
				t.Fatalf("CommitSync: %v", err)
			}
			if re := recordsErrorIn(t, err); re.Partition != 0 || len(re.Offsets) != 1 || forged.Load() == 0 {
				t.Fatalf("%d answers forged, %v", forged.Load(), err)
			}
		})
	}
}

// A partition that the answer does not name, or names with a code that nobody
// knows, may have been taken: that is told, and nothing is sent again, where it
// would be refused and pass for not taken. The partition beside it is.
func TestUnansweredPartitionIsUnknown(t *testing.T) {
	for name, forge := range map[string]func(p *kmsg.ShareAcknowledgeResponseTopicPartition) (keep bool){
		"not named":    func(*kmsg.ShareAcknowledgeResponseTopicPartition) bool { return false },
		"unknown code": func(p *kmsg.ShareAcknowledgeResponseTopicPartition) bool { p.ErrorCode = 9999; return true },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			c := startClusterWith(t, 20*time.Second, func(cfg *broker.Config) { cfg.Brokers = 1 })
			c.feedTo(ctx, t, 4, 2)
			m := c.consumer(t)
			rs := gather(ctx, t, m, 4)
			forged := c.onAnswers(keyShareAck, func(resp kmsg.Response) (done bool) {
				r := resp.(*kmsg.ShareAcknowledgeResponse)
				for i := range r.Topics {
					r.Topics[i].Partitions = slices.DeleteFunc(r.Topics[i].Partitions, func(p kmsg.ShareAcknowledgeResponseTopicPartition) bool { return p.Partition == 0 })
					if one := kmsg.NewShareAcknowledgeResponseTopicPartition(); forge(&one) {
						r.Topics[i].Partitions = append(r.Topics[i].Partitions, one)
					}
					done = true
				}
				return done
			})
			var errs []error
			batches := 0
			for b := range batchesOfRecords(rs) {
				b.AcceptRest()
				errs = append(errs, b.CommitSync(ctx))
				batches++
			}
			err := errors.Join(errs...)
			if e, ok := errors.AsType[*sharetxn.Error](err); !ok || e.Partition != 0 || e.Class != sharetxn.ClassUnknown || errors.Is(err, sharetxn.ErrStale) {
				t.Fatalf("CommitSync: %v", err)
			}
			if re := recordsErrorIn(t, err); re.Partition != 0 || int(forged.Load()) != batches {
				t.Fatalf("%d requests of %d batches, %v", forged.Load(), batches, err)
			}
			c.waitDone(ctx, t, 4) // it had taken them
		})
	}
}

// What was not asked for is not handed out: nobody could say of what topic it
// is. What stands beside it in the answer is.
func TestUnaskedPartitionsAreNotHandedOut(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 2, 1)
	forged := c.onAnswers(keyShareFetch, func(resp kmsg.Response) bool {
		r := resp.(*kmsg.ShareFetchResponse)
		for i := range r.Topics {
			if len(r.Topics[i].Partitions) == 1 && len(r.Topics[i].Partitions[0].Records) > 0 {
				p := r.Topics[i].Partitions[0]
				p.Partition = 77
				r.Topics[i].Partitions = append(r.Topics[i].Partitions, p)
				alien := kmsg.NewShareFetchResponseTopic()
				alien.TopicID, alien.Partitions = [16]byte{9, 9}, []kmsg.ShareFetchResponseTopicPartition{p}
				r.Topics = append(r.Topics, alien)
				return true
			}
		}
		return false
	})
	m := c.consumer(t)
	for n := 0; n < 2; {
		b := poll(ctx, t, m)
		for _, r := range b.Records() {
			if r.Topic != "in" || r.Partition != 0 {
				t.Fatalf("handed out %s", where(r))
			}
			n++
		}
		b.AcceptRest()
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if forged.Load() == 0 {
		t.Fatal("nothing was forged")
	}
	c.waitDone(ctx, t, 2)
}

// An older delivery decides nothing, also where the newer one came without its
// record: the broker would take the verdict for the newer.
func TestDeliveredAgainWithoutTheRecord(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 500*time.Millisecond)
	c.feedTo(ctx, t, 2, 1)
	m := c.consumer(t)
	older := gather(ctx, t, m, 2)
	if err := c.SetGroupConfig("g", map[string]string{"share.record.lock.duration.ms": "20000"}); err != nil {
		t.Fatal(err)
	}
	emptied := c.onFetched(func(p *kmsg.ShareFetchResponseTopicPartition) { p.Records = nil })
	if _, err := m.Poll(ctx); len(recordsErrorIn(t, err).Offsets) != 2 || emptied.Load() != 1 {
		t.Fatalf("emptied %d answers; %v", emptied.Load(), err)
	}
	if older[0].Held() {
		t.Error("the older delivery is held still")
	}
	older[0].Reject()
	older[1].Accept()
	for b := range batchesOfRecords(older) {
		if err := b.CommitSync(ctx); !errors.Is(err, errAgain) {
			t.Fatalf("the older delivery was committed: %v", err)
		}
	}
	newer := gather(ctx, t, m, 2) // released, as nobody saw them
	for b := range batchesOfRecords(newer) {
		b.AcceptRest()
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c.waitDone(ctx, t, 2)
}

// Acquired ranges of every kind of nonsense cost nothing but themselves: the
// records that were acquired come, once, and are done.
func TestForgedRanges(t *testing.T) {
	type acquired = kmsg.ShareFetchResponseTopicPartitionAcquiredRecord
	span := func(first, last int64, count int16) acquired {
		return acquired{FirstOffset: first, LastOffset: last, DeliveryCount: count}
	}
	for name, forge := range map[string]func(as []acquired) []acquired{
		"negative, inverted, endless": func(as []acquired) []acquired {
			return append(as, span(-5, -1, 1), span(9, 3, 1), span(-1<<63, 1<<63-1, 1), span(0, 1<<63-1, 1))
		},
		"each twice":           func(as []acquired) []acquired { return append(as, as...) },
		"counts below one":     func(as []acquired) []acquired { as[0].DeliveryCount = -7; return as },
		"beyond what is there": func(as []acquired) []acquired { return append(as, span(1000, 1<<60, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			var w watcher
			c := startCluster(t, 20*time.Second, &w)
			forged := c.onFetched(func(p *kmsg.ShareFetchResponseTopicPartition) {
				p.AcquiredRecords = forge(slices.Clone(p.AcquiredRecords))
			})
			c.feedTo(ctx, t, 3, 1)
			m := c.consumer(t)
			got := make(map[int64]bool)
			for len(got) < 3 {
				b, err := m.Poll(ctx)
				if err != nil {
					if recordsErrorIn(t, err).Offsets[0] < 1000 {
						t.Fatal(err)
					}
					continue
				}
				for _, r := range b.Records() {
					if got[r.Offset] || r.DeliveryCount() != 1 {
						t.Errorf("%s: again, or delivery %d", where(r), r.DeliveryCount())
					}
					got[r.Offset] = true
				}
				b.AcceptRest()
				if err := b.CommitSync(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if forged.Load() != 1 {
				t.Fatal("nothing was forged")
			}
			for _, f := range kept(&w, &w.fetches) {
				if f.Records < 0 {
					t.Errorf("a hook was told of %d records", f.Records)
				}
			}
			c.waitDone(ctx, t, 3)
		})
	}
}

// An epoch that no member has is not sent back: -1 would be a leave, and the
// group would take the member's records away.
func TestForgedMemberEpoch(t *testing.T) {
	for _, epoch := range []int32{0, -1, -2} {
		ctx := testkit.Deadline(t, 30*time.Second)
		c := startCluster(t, 20*time.Second)
		c.feedTo(ctx, t, 1, 1)
		var b beats
		b.watch(c)
		m := c.consumer(t)
		r := gather(ctx, t, m, 1)[0]
		b.arm(func(*kmsg.ShareGroupHeartbeatRequest) broker.Action {
			return broker.Action{After: func(resp kmsg.Response) { resp.(*kmsg.ShareGroupHeartbeatResponse).MemberEpoch = epoch }}
		})
		for _, req := range b.after(ctx, t, 2)[1:] {
			if req.MemberEpoch <= 0 {
				t.Errorf("after epoch %d: the next heartbeat has epoch %d", epoch, req.MemberEpoch)
			}
		}
		if m.ShareGroupMetadata().IsZero() || !r.Held() {
			t.Errorf("after epoch %d the member holds nothing", epoch)
		}
	}
}

// However short CloseTimeout is, brokers hold fetches that find nothing.
func TestShortCloseTimeoutDoesNotHurryFetches(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const ms = time.Millisecond
	for _, c := range []struct{ maxWait, lock, closing, want time.Duration }{
		{500 * ms, 30 * time.Second, 5 * time.Second, 500 * ms},
		{500 * ms, time.Second, 5 * time.Second, 100 * ms},
		{500 * ms, 30 * time.Second, 200 * ms, 50 * ms},
		{500 * ms, 30 * time.Second, 1, shortWait},
		{500 * ms, ms, 5 * time.Second, shortWait},
		{ms, 30 * time.Second, 5 * time.Second, ms},
	} {
		if got := longest(c.maxWait, c.lock, c.closing); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	c.feedTo(ctx, t, 1, 1)
	var mu sync.Mutex
	var waits []int32
	c.SetIntercept(func(r broker.Request) broker.Action {
		if req, ok := r.Message().(*kmsg.ShareFetchRequest); ok {
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, req.MaxWaitMillis)
		}
		return broker.Action{}
	})
	gather(ctx, t, c.consumer(t, CloseTimeout(ms)), 1)
	mu.Lock()
	defer mu.Unlock()
	if len(waits) == 0 || slices.Min(waits) < 1 {
		t.Errorf("fetches wait %v ms", waits)
	}
}

// Implicit mode tells of every record how it went, also where the handler took
// several locks: none is dropped in silence.
func TestImplicitTellsWhatCameTooLate(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 200*time.Millisecond)
	c.feedTo(ctx, t, 1, 1)
	results := make(chan AckResult, 10)
	m := c.consumer(t, AcknowledgementMode(Implicit), OnAcknowledged(func(a AckResult) { results <- a }))
	r := gather(ctx, t, m, 1)[0]
	testkit.Eventually(ctx, t, "two locks are over", func() bool { return time.Since(r.AcquisitionDeadline()) > 300*time.Millisecond })
	if _, err := m.Poll(ctx); err != nil && !errors.Is(err, sharetxn.ErrStale) {
		t.Fatal(err)
	}
	select {
	case a := <-results:
		if !errors.Is(a.Err, sharetxn.ErrStale) || a.Batches[0].FirstOffset != r.Offset {
			t.Fatalf("told %+v", a)
		}
	case <-ctx.Done():
		t.Fatal("nobody was told")
	}
}

// Drain does not wait for what Close has ended.
func TestDrainEndsWithClose(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	silent := make(chan struct{})
	defer close(silent)
	var held atomic.Int32
	c.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key != keyShareFetch {
			return broker.Action{}
		}
		held.Add(1)
		return broker.Action{Wait: silent}
	})
	m := c.consumer(t, CloseTimeout(200*time.Millisecond))
	pctx, cancel := context.WithCancel(ctx)
	polled := make(chan error, 1)
	go func() { _, err := m.Poll(pctx); polled <- err }()
	testkit.Eventually(ctx, t, "fetches are under way", func() bool { return held.Load() > 0 })
	cancel()
	<-polled
	drained := make(chan error, 1)
	go func() { drained <- m.Drain(ctx) }()
	_ = m.Close() // which does not wait for the broker either
	if err := <-drained; err != nil {
		t.Fatalf("Drain: %v", err)
	}
}

// One bad record among many small acknowledgements that left together fails
// alone, and is found by halves: while it is looked for nothing else is sent.
func TestBadPieceAmongMany(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 30*time.Second)
	const n, bad = 256, 100
	c.feedTo(ctx, t, n, 1)
	m := c.consumer(t, MaxPollRecords(n))
	rs := gather(ctx, t, m, n)
	m.mu.Lock()
	rs[bad].verdict = acks.Release
	gone := m.plain(rs[bad:bad+1], true) // behind the batch's back
	m.mu.Unlock()
	if err := gone.wait(ctx); err != nil {
		t.Fatal(err)
	}
	w := c.tap()
	jobs := make([]*ackJob, n)
	m.mu.Lock()
	for i, r := range rs { // before the session looks
		r.verdict = acks.Accept
		jobs[i] = m.plain([]*Record{r}, true)
	}
	m.mu.Unlock()
	for i, j := range jobs {
		switch err := j.wait(ctx); {
		case i != bad && err != nil:
			t.Fatalf("record %d: %v", i, err)
		case i == bad && !errors.Is(err, sharetxn.ErrStale):
			t.Fatalf("the bad one: %v", err)
		}
	}
	if _, alone := w.seen(0, 0); len(alone) < 2 || len(alone) > 20 {
		t.Errorf("%d requests", len(alone))
	}
	if done, av, ac, _ := c.totals(); done != n-1 || av != 1 || ac != 0 {
		t.Errorf("done %d, available %d, acquired %d", done, av, ac)
	}
}

// Many acknowledgements that are refused with a code that asks for patience wait
// together, not one after another, and are all taken.
func TestPatienceIsShared(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	x := exchange{waits: 1}
	cancel()
	if x.patient(ctx, 0) || x.patient(ctx, 1) {
		t.Error("went on after the end")
	}
	x = exchange{}
	for _, tries := range []int{0, 0, 1, 0, 1, 2, 2} {
		before := x.waits
		if !x.patient(t.Context(), tries) || x.waits != max(before, tries+1) {
			t.Errorf("try %d: %d waits after %d", tries, x.waits, before)
		}
	}
}

// What OnAssigned is given is its own to change.
func TestOnAssignedMayKeepWhatItIsGiven(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feed(ctx, t, 3)
	var told atomic.Int32
	m := c.consumer(t, OnAssigned(func(by map[string][]int32) {
		for _, ps := range by {
			for i := range ps {
				ps[i] = 99
				told.Add(1)
			}
		}
	}))
	gather(ctx, t, m, 3) // of all partitions
	testkit.Eventually(ctx, t, "OnAssigned was called", func() bool { return told.Load() >= 3 })
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(m.told["in"], []int32{0, 1, 2}) {
		t.Fatalf("the consumer takes it for told that it has %v", m.told)
	}
}
