package shareconsumer

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	keyShareBeat  = 76
	keyShareFetch = 78
)

func recordsErrorIn(t *testing.T, err error) *sharetxn.RecordsError {
	t.Helper()
	var re *sharetxn.RecordsError
	if !errors.As(err, &re) {
		t.Fatalf("%v names no records", err)
	}
	return re
}

// onFetched lets fn change the first answer to a ShareFetch that carries
// records, and counts.
func (c *cluster) onFetched(fn func(*kmsg.ShareFetchResponseTopicPartition)) *atomic.Int32 {
	var done atomic.Int32
	c.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key != keyShareFetch {
			return broker.Action{}
		}
		return broker.Action{After: func(resp kmsg.Response) {
			for _, t := range resp.(*kmsg.ShareFetchResponse).Topics {
				for i := range t.Partitions {
					if len(t.Partitions[i].Records) > 0 && done.CompareAndSwap(0, 1) {
						fn(&t.Partitions[i])
					}
				}
			}
		}}
	})
	return &done
}

// What could not be read is told, given back, and delivered again; it is never
// taken for a gap, which would archive records that nobody saw. What could be
// read is delivered at once.
func TestUnreadableRecordsComeBack(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"a batch in the middle is damaged": func(raw []byte) []byte {
			first := frameOf(raw)
			second := frameOf(raw[len(first):])
			second[len(second)-1] ^= 1
			return raw
		},
		"the answer is cut after the first batch": func(raw []byte) []byte { return raw[:len(frameOf(raw))] },
		"the answer is cut in the second batch":   func(raw []byte) []byte { return raw[:len(frameOf(raw))+30] },
		"the records are missing":                 func([]byte) []byte { return []byte{} },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			c := startCluster(t, 20*time.Second)
			for range 3 { // a batch each
				c.feedTo(ctx, t, 1, 1)
			}
			done := c.onFetched(func(p *kmsg.ShareFetchResponseTopicPartition) { p.Records = damage(p.Records) })
			m := c.consumer(t)
			counts := make(map[int64]int32)
			told := 0
			for len(counts) < 3 {
				b, err := m.Poll(ctx)
				if err != nil {
					told++
					if re := recordsErrorIn(t, err); re.Topic != "in" || re.Partition != 0 || len(re.Offsets) == 0 || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
						t.Fatalf("Poll: %v", err)
					}
					continue
				}
				for _, r := range b.Records() {
					counts[r.Offset] = r.DeliveryCount()
				}
				b.AcceptRest()
				if err := b.CommitSync(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if done.Load() != 1 || told != 1 {
				t.Fatalf("damaged %d answers, told %d times", done.Load(), told)
			}
			if counts[1] != 2 {
				t.Fatalf("deliveries %v", counts)
			}
			c.waitDone(ctx, t, 3)
		})
	}
}

// The lock ends and this member gets the record again: a verdict on the older
// delivery must not touch the newer.
func TestOlderDeliveryCannotTouchTheNewer(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 500*time.Millisecond)
	c.feedTo(ctx, t, 2, 1)
	m := c.consumer(t)
	older := poll(ctx, t, m)
	olderRecords := older.Records()
	if err := c.SetGroupConfig("g", map[string]string{"share.record.lock.duration.ms": "20000"}); err != nil {
		t.Fatal(err)
	}
	newer := poll(ctx, t, m)
	if newer.Len() != 2 || newer.Records()[0].DeliveryCount() != 2 {
		t.Fatalf("%d records came again", newer.Len())
	}
	olderRecords[0].Accept()
	olderRecords[1].Release()
	if err := older.CommitSync(ctx); !errors.Is(err, sharetxn.ErrStale) || !errors.Is(err, errAgain) {
		t.Fatalf("the older delivery was committed: %v", err)
	}
	if done, av, ac, _ := c.totals(); done != 0 || av != 0 || ac != 2 {
		t.Fatalf("done %d, available %d, acquired %d", done, av, ac)
	}
	newer.AcceptRest()
	if err := newer.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	c.waitDone(ctx, t, 2)
}

// The same where the acknowledgement was already queued behind the fetch that
// brings the record again.
func TestQueuedAcknowledgementOfAnOlderDelivery(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 1, 1)
	results := make(chan AckResult, 10)
	m := c.consumer(t, OnAcknowledged(func(a AckResult) { results <- a }))
	b := poll(ctx, t, m)
	r := b.Records()[0]
	r.Accept()
	m.mu.Lock()
	job := m.plain(b.records, false)
	b.remove(b.records)
	again := *r.lease
	again.waiting, again.records, again.live, again.count, again.listed = []*kgo.Record{r.Record}, nil, 0, 2, false
	m.displace(again.key(), span{first: again.first, last: again.last})
	m.gave(&again)
	m.mu.Unlock()
	if err := job.wait(ctx); !errors.Is(err, errAgain) {
		t.Fatalf("an acknowledgement of the older delivery was sent: %v", err)
	}
	if a := <-results; !errors.Is(a.Err, sharetxn.ErrStale) {
		t.Fatalf("OnAcknowledged was told %+v", a)
	}
	if done, _, ac, _ := c.totals(); done != 0 || ac != 1 {
		t.Fatalf("done %d, acquired %d", done, ac)
	}
}

// A coordinator that is loading is waited for; the caller sees nothing of it.
func TestTransientRefusalIsRetried(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 2, 1)
	m := c.consumer(t)
	b := poll(ctx, t, m)
	var refused atomic.Int32
	c.SetIntercept(func(r broker.Request) broker.Action { // handled nevertheless, or the session would be out of step
		if r.Key != keyShareAck || refused.Load() == 2 {
			return broker.Action{}
		}
		refused.Add(1)
		return broker.Action{After: func(resp kmsg.Response) {
			resp.(*kmsg.ShareAcknowledgeResponse).Topics[0].Partitions[0].ErrorCode = kerr.CoordinatorLoadInProgress.Code
		}}
	})
	b.AcceptRest()
	if err := b.CommitSync(ctx); err != nil || refused.Load() != 2 {
		t.Fatalf("refused %d times, %v", refused.Load(), err)
	}
	c.waitDone(ctx, t, 2)
}

// One that never gets well is given up, as not done; a code that does not tell
// is unknown.
func TestRefusalThatStays(t *testing.T) {
	for _, tc := range []struct {
		code  *kerr.Error
		tries int32
		class sharetxn.Class
	}{
		{kerr.CoordinatorNotAvailable, 1 + maxRetries, sharetxn.ClassAbortable},
		{kerr.UnknownServerError, 1, sharetxn.ClassUnknown},
		{kerr.InvalidRequest, 3, sharetxn.ClassAbortable}, // of one offset it would be, so they are tried apart
	} {
		t.Run(tc.code.Message, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			c := startCluster(t, 20*time.Second)
			c.feedTo(ctx, t, 2, 1)
			m := c.consumer(t)
			b := poll(ctx, t, m)
			var refused atomic.Int32
			c.refuseAcks(&refused, 100, tc.code.Code)
			b.AcceptRest()
			err := b.CommitSync(ctx)
			if refused.Load() != tc.tries || !errors.Is(err, tc.code) || sharetxn.ClassOf(err) != tc.class {
				t.Fatalf("refused %d times, %v", refused.Load(), err)
			}
			if re := recordsErrorIn(t, err); len(re.Offsets) != 2 {
				t.Fatalf("%v", err)
			}
			c.SetIntercept(nil)
			if done, _, ac, _ := c.totals(); done != 0 || ac != 2 {
				t.Fatalf("done %d, acquired %d", done, ac)
			}
		})
	}
}

// refuseAcks answers the first n acknowledgements with a code, unhandled.
func (c *cluster) refuseAcks(refused *atomic.Int32, n int32, code int16) {
	c.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key != keyShareAck || refused.Load() >= n {
			return broker.Action{}
		}
		req := r.Message().(*kmsg.ShareAcknowledgeRequest)
		if req.ShareSessionEpoch < 0 {
			return broker.Action{}
		}
		refused.Add(1)
		return broker.Action{Answer: ackAnswer(req, code)}
	})
}

// ackAnswer is what a broker answers that refuses every partition. The session
// behind it has not seen the request, so its epoch is behind from then on.
func ackAnswer(req *kmsg.ShareAcknowledgeRequest, code int16) *kmsg.ShareAcknowledgeResponse {
	resp := req.ResponseKind().(*kmsg.ShareAcknowledgeResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewShareAcknowledgeResponseTopic()
		rt.TopicID = t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewShareAcknowledgeResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, code
			rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = -1, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// The broker does not know the session, or not its epoch: what was acquired is
// refused, loudly, and comes again without waiting for the locks.
func TestSessionIsGone(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.ShareSessionNotFound, kerr.InvalidShareSessionEpoch} {
		t.Run(code.Message, func(t *testing.T) {
			ctx := testkit.Deadline(t, 20*time.Second)
			c := startCluster(t, 25*time.Second)
			c.feedTo(ctx, t, 2, 1)
			m := c.consumer(t)
			b := poll(ctx, t, m)
			var refused atomic.Int32
			c.SetIntercept(func(r broker.Request) broker.Action {
				if r.Key != keyShareAck || !refused.CompareAndSwap(0, 1) {
					return broker.Action{}
				}
				resp := r.Message().ResponseKind().(*kmsg.ShareAcknowledgeResponse)
				resp.ErrorCode = code.Code
				return broker.Action{Answer: resp}
			})
			b.AcceptRest()
			if err := b.CommitSync(ctx); refused.Load() != 1 || !errors.Is(err, code) {
				t.Fatalf("refused %d times, %v", refused.Load(), err)
			}
			again := gather(ctx, t, m, 2)
			if again[0].DeliveryCount() != 2 {
				t.Fatalf("delivery %d", again[0].DeliveryCount())
			}
			again[0].batch.AcceptRest()
			if err := again[0].batch.CommitSync(ctx); err != nil {
				t.Fatal(err)
			}
			c.waitDone(ctx, t, 2)
		})
	}
}

// A broker goes away and comes back: its records are delivered again, those of
// the others were never in doubt. What it had handed out was in its memory only,
// so the delivery before does not count.
func TestBrokerRestarts(t *testing.T) {
	ctx := testkit.Deadline(t, 40*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feed(ctx, t, 3)
	m := c.consumer(t)
	rs := gather(ctx, t, m, 3)
	down := c.Leader("in", 2)
	c.StopNode(down)
	for _, r := range rs {
		r.Accept()
	}
	var failed []error
	for b := range batchesOfRecords(rs) {
		if err := b.CommitSync(ctx); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) != 1 || recordsErrorIn(t, failed[0]).Partition != 2 {
		t.Fatalf("errors %v", failed)
	}
	if err := c.StartNode(down); err != nil {
		t.Fatal(err)
	}
	again := gather(ctx, t, m, 1)[0]
	if again.Partition != 2 || again.DeliveryCount() != 1 {
		t.Fatalf("%s, delivery %d", where(again), again.DeliveryCount())
	}
	again.Accept()
	if err := again.batch.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	c.waitDone(ctx, t, 3)
}

func batchesOfRecords(rs []*Record) map[*Batch]bool {
	all := make(map[*Batch]bool)
	for _, r := range rs {
		all[r.batch] = true
	}
	return all
}

// One fetch per broker is all that is taken without a poll, and it is bounded.
func TestUnpolledRecordsAreBounded(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	for range 20 { // batches of 50
		c.feedTo(ctx, t, 50, 1)
	}
	m := c.consumer(t, MaxPollRecords(100))
	if n := poll(ctx, t, m).Len(); n != 100 {
		t.Fatalf("a batch of %d", n)
	}
	fetches, beats := c.Traffic(keyShareFetch).Requests, c.Traffic(keyShareBeat).Requests
	testkit.Eventually(ctx, t, "ten heartbeats", func() bool { return c.Traffic(keyShareBeat).Requests > beats+10 })
	if got := c.Traffic(keyShareFetch).Requests; got > fetches+2 { // of the other brokers, parked since the poll
		t.Fatalf("%d fetches without a poll", got-fetches)
	}
	if _, _, ac, _ := c.totals(); ac < 100 || ac >= 200 {
		t.Fatalf("%d records acquired for a poll of 100", ac)
	}
	// the neighbouring case: polls go on
	for seen := 100; seen < 1000; {
		seen += poll(ctx, t, m).Len()
	}
}

// A margin that no record can have would release each until it is archived.
func TestMarginIsCapped(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 1, 1)
	m := c.consumer(t, LockMargin(time.Hour))
	if r := gather(ctx, t, m, 1)[0]; r.DeliveryCount() != 1 {
		t.Fatalf("delivery %d", r.DeliveryCount())
	}
}

// Acknowledgements for a partition that is fetched from no more do not wait for
// a fetch that will never carry them.
func TestWhatCannotRideLeavesAlone(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	in, out := partKey{[16]byte{1}, 0}, partKey{[16]byte{1}, 1}
	c := &Consumer{polling: 1, cfg: defaults(), lock: time.Minute}
	s := newSession(c, 0)
	s.want = map[partKey]acks.TopicIDPartition{in: {TopicID: in.topic, Partition: in.part}}
	for name, tc := range map[string]struct {
		epoch int32
		part  partKey
		want  action
	}{
		"fetched from":     {1, in, fetchRecords},
		"not any more":     {1, out, sendAcks},
		"no session yet":   {0, in, sendAcks},
		"neither the same": {0, out, sendAcks},
	} {
		s.epoch = tc.epoch
		s.queue = []*piece{{job: &ackJob{c: c}, parts: []part{{tp: acks.TopicIDPartition{TopicID: tc.part.topic, Partition: tc.part.part}}}}}
		if got := choose(s.view(time.Now())); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
