package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// producer is a kgo producer of transactional id "x".
func producer(t *testing.T, c *Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return client(t, c, append([]kgo.Opt{kgo.TransactionalID("x"), kgo.DefaultProduceTopic("out")}, opts...)...)
}

// write begins a transaction and writes one record in it.
func write(ctx context.Context, t *testing.T, p *kgo.Client, value string) {
	t.Helper()
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := p.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// end sends EndTxn v5 as the producer that kgo is at present.
func end(ctx context.Context, t *testing.T, cl *kgo.Client, k txn.Key, commit bool) (txn.Key, int16) {
	t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = "x", k.ProducerID, k.ProducerEpoch, commit
	resp := ask[*kmsg.EndTxnResponse](ctx, t, cl, req)
	return txn.Key{ProducerID: resp.ProducerID, ProducerEpoch: resp.ProducerEpoch}, resp.ErrorCode
}

func key(ctx context.Context, t *testing.T, p *kgo.Client) txn.Key {
	t.Helper()
	id, epoch, err := p.ProducerID(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return txn.Key{ProducerID: id, ProducerEpoch: epoch}
}

func view(c *Cluster) txn.View { return c.Transactions()[0] }

func wantCode(t *testing.T, what string, got, want int16) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: code %d, want %d", what, got, want)
	}
}

// wantSettled fails the test unless readers of committed data can read all.
func wantSettled(t *testing.T, c *Cluster, topic string) {
	t.Helper()
	for _, p := range c.kf.PartitionInfos(topic) {
		if p.LastStableOffset != p.HighWatermark {
			t.Errorf("%s-%d: last stable offset %d, high watermark %d", topic, p.Partition, p.LastStableOffset, p.HighWatermark)
		}
	}
}

// committed reads the committed records of "out" until n came.
func committed(ctx context.Context, t *testing.T, c *Cluster, n int) (values []string) {
	t.Helper()
	r := client(t, c, kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for len(values) < n {
		fs := r.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read %q, want %d", values, n)
		}
		fs.EachRecord(func(rec *kgo.Record) { values = append(values, string(rec.Value)) })
	}
	return values
}

// EndTxn v5 over the wire: retries at the old epoch tell the outcome.
func TestEndTxnRetries(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"out": 3}})
	cl := client(t, c)
	for _, commit := range []bool{true, false} {
		p := producer(t, c)
		write(ctx, t, p, "a")
		k := key(ctx, t, p)
		next, code := end(ctx, t, cl, k, commit)
		wantCode(t, "end", code, 0)
		if next != (txn.Key{ProducerID: k.ProducerID, ProducerEpoch: k.ProducerEpoch + 1}) {
			t.Fatalf("%v after %v", next, k)
		}
		again, code := end(ctx, t, cl, k, commit)
		wantCode(t, "same end again", code, 0)
		if again != next {
			t.Fatalf("again %v, first %v", again, next)
		}
		_, code = end(ctx, t, cl, k, !commit)
		wantCode(t, "the other end", code, 48)
		_, code = end(ctx, t, cl, txn.Key{ProducerID: k.ProducerID + 1, ProducerEpoch: k.ProducerEpoch}, commit)
		wantCode(t, "end of another id", code, 49)
		_, code = end(ctx, t, cl, next, true)
		wantCode(t, "commit of nothing", code, 48)
		next, code = end(ctx, t, cl, next, false)
		wantCode(t, "abort of nothing", code, 0)
		_, code = end(ctx, t, cl, k, commit)
		wantCode(t, "end of long ago", code, 90)
		if v := view(c); v.ProducerEpoch != next.ProducerEpoch || v.Status != txn.CompleteAbort {
			t.Fatalf("transaction %+v", v)
		}
		wantSettled(t, c, "out")
	}
	if got := committed(ctx, t, c, 1); got[0] != "a" {
		t.Fatalf("read %q", got)
	}
}

// A second producer with the id fences the first one and aborts its work.
func TestFencing(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"out": 3}})
	old, cl := producer(t, c), client(t, c)
	write(ctx, t, old, "zombie's")
	k := key(ctx, t, old)
	now := producer(t, c)
	write(ctx, t, now, "new")
	if err := old.ProduceSync(ctx, kgo.StringRecord("zombie's")).FirstErr(); !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Errorf("zombie's produce: %v", err)
	}
	for _, commit := range []bool{true, false} {
		_, code := end(ctx, t, cl, k, commit)
		wantCode(t, "zombie's end", code, 90)
	}
	if err := now.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if got := committed(ctx, t, c, 1); got[0] != "new" {
		t.Fatalf("read %q", got)
	}
	wantSettled(t, c, "out")
}

// The broker aborts a transaction that takes too long; a commit finds out.
func TestTransactionTimeout(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Topics: map[string]int32{"out": 1}})
	p, cl := producer(t, c, kgo.TransactionTimeout(300*time.Millisecond)), client(t, c)
	write(ctx, t, p, "late")
	k := key(ctx, t, p)
	testkit.Eventually(ctx, t, "transaction timed out", func() bool { return view(c).Status == txn.CompleteAbort })
	wantSettled(t, c, "out")
	if err := p.ProduceSync(ctx, kgo.StringRecord("later")).FirstErr(); !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Errorf("produce: %v", err)
	}
	_, code := end(ctx, t, cl, k, true)
	wantCode(t, "commit", code, 48)
	_, code = end(ctx, t, cl, k, false)
	wantCode(t, "abort", code, 0)
	again := producer(t, c)
	write(ctx, t, again, "in time")
	if err := again.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if got := committed(ctx, t, c, 1); got[0] != "in time" {
		t.Fatalf("read %q", got)
	}
}

// The limit of transaction timeouts is the cluster's, not kfake's.
func TestMaxTransactionTimeout(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{MaxTxnTimeout: time.Minute})
	x := "x"
	for timeout, want := range map[int32]int16{60_000: 0, 60_001: 50} {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &x, timeout, -1, -1
		wantCode(t, "init", ask[*kmsg.InitProducerIDResponse](ctx, t, client(t, c), req).ErrorCode, want)
	}
}

// With markers held EndTxn is answered, the commit is decided and not visible;
// afterwards a reader that already waits sees it without waiting out its poll.
func TestHeldMarkers(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"out": 3}})
	p, cl := producer(t, c), client(t, c)
	write(ctx, t, p, "a")
	k := key(ctx, t, p)
	out := view(c).Partitions[0].Partition
	held, release := make(chan struct{}), make(chan struct{})
	c.TreatMarkers(func(m txn.Marker) txn.Treatment {
		if m.TransactionalID != "x" || !m.Commit || m.Share || m.Partition != (txn.Partition{Topic: "out", Partition: out}) {
			t.Errorf("asked about %+v", m)
		}
		close(held)
		return txn.Treatment{Wait: release}
	})
	_, code := end(ctx, t, cl, k, true)
	wantCode(t, "commit", code, 0)
	<-held
	if v := view(c); v.Status != txn.PrepareCommit || len(v.Partitions) != 1 {
		t.Fatalf("transaction %+v", v)
	}
	adm := kadm.NewClient(cl)
	described, err := adm.DescribeTransactions(ctx, "x")
	if err != nil || described["x"].State != "PrepareCommit" {
		t.Fatalf("described %+v, %v", described, err)
	}
	active, err := adm.DescribeProducers(ctx, kadm.TopicsSet{"out": {0: {}, 1: {}, 2: {}}})
	if err != nil {
		t.Fatal(err)
	}
	if ps := active.SortedProducers(); len(ps) != 1 || ps[0].ProducerID != k.ProducerID || ps[0].ProducerEpoch != k.ProducerEpoch || ps[0].CurrentTxnStartOffset != 0 {
		t.Fatalf("active producers %+v", ps)
	}
	if info := c.kf.PartitionInfo("out", out); info.LastStableOffset != 0 || info.HighWatermark != 1 {
		t.Fatalf("partition %+v", info)
	}
	r := client(t, c, kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(20*time.Second))
	fetches := c.Traffic(keyFetch).Requests
	got := make(chan kgo.Fetches, 1)
	go func() { got <- r.PollFetches(ctx) }()
	testkit.Eventually(ctx, t, "the reader waits at every node", func() bool { return c.Traffic(keyFetch).Requests >= fetches+3 })
	close(release)
	began := time.Now()
	if fs := <-got; fs.NumRecords() != 1 {
		t.Fatalf("%d records, %v", fs.NumRecords(), fs.Errors())
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("the reader was not woken for %v", d)
	}
	wantSettled(t, c, "out")
	c.TreatMarkers(nil)
	_, code = end(ctx, t, cl, k, true)
	wantCode(t, "commit again", code, 0)
	if active, err = adm.DescribeProducers(ctx, kadm.TopicsSet{"out": {0: {}, 1: {}, 2: {}}}); err != nil {
		t.Fatal(err)
	}
	if ps := active.SortedProducers(); len(ps) != 1 || ps[0].ProducerID != k.ProducerID || ps[0].ProducerEpoch != k.ProducerEpoch+1 || ps[0].CurrentTxnStartOffset != -1 {
		t.Fatalf("producers after the end: %+v", ps)
	}
}

// keyFetch is kfake's, counted here.
const keyFetch = 1

// kgo's own consume-transform-produce commits group offsets in transactions:
// each input comes out once, through a member that leaves on the way.
func TestGroupTransactSession(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"in": 3, "out": 3}})
	const n = 300
	feed(ctx, t, c, "in", n)
	for round := range 2 {
		s, err := kgo.NewGroupTransactSession(
			kgo.SeedBrokers(c.Seeds()...), kgo.DisableClientMetrics(), kgo.TransactionalID("x"), kgo.DefaultProduceTopic("out"),
			kgo.ConsumerGroup("classic"), kgo.ConsumeTopics("in"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		)
		if err != nil {
			t.Fatal(err)
		}
		for done := 0; done < n/2; {
			fs := s.PollRecords(ctx, 50)
			if ctx.Err() != nil {
				t.Fatalf("round %d: %d records", round, done)
			}
			if err := s.Begin(); err != nil {
				t.Fatal(err)
			}
			fs.EachRecord(func(r *kgo.Record) {
				s.Produce(ctx, &kgo.Record{Value: r.Value}, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Errorf("produce: %v", err)
					}
				})
			})
			committed, err := s.End(ctx, kgo.TryCommit)
			if err != nil {
				t.Fatal(err)
			}
			if committed {
				done += fs.NumRecords()
			}
		}
		s.Close()
	}
	seen := make(map[string]int)
	for _, v := range committed(ctx, t, c, n) {
		seen[v]++
	}
	if len(seen) != n {
		t.Fatalf("%d of %d inputs came out", len(seen), n)
	}
	wantSettled(t, c, "out")
}

// Offsets of a member that is none are refused when they are sent, and an
// aborted transaction commits none; the group is not touched.
func TestTxnOffsetCommit(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"in": 1, "out": 1}})
	cl := client(t, c)
	adm := kadm.NewClient(cl)
	p := producer(t, c)
	for _, tc := range []struct {
		member     string
		generation int32
		commit     bool
		code       int16
		offset     int64 // afterwards
	}{
		{"", -1, false, 0, -1},
		{"", -1, true, 0, 7},
		{"nobody", 3, true, 25, 7},
	} {
		write(ctx, t, p, "a")
		k := key(ctx, t, p)
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = "x", "classic", k.ProducerID, k.ProducerEpoch
		req.MemberID, req.Generation = tc.member, tc.generation
		req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "in", TopicID: c.TopicID("in"), Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: 7, LeaderEpoch: -1}}}}
		wantCode(t, "offsets", ask[*kmsg.TxnOffsetCommitResponse](ctx, t, cl, req).Topics[0].Partitions[0].ErrorCode, tc.code)
		if err := p.EndTransaction(ctx, kgo.TransactionEndTry(tc.commit)); err != nil {
			t.Fatal(err)
		}
		offsets, err := adm.FetchOffsets(ctx, "classic")
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			t.Fatal(err)
		}
		at := int64(-1)
		if o, ok := offsets.Lookup("in", 0); ok {
			at = o.At
		}
		if at != tc.offset {
			t.Fatalf("member %q, commit %v: offset %d, want %d", tc.member, tc.commit, at, tc.offset)
		}
	}
}

// A produce that nobody will hear about is cut off when it is refused.
func TestRefusedWithoutAcks(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Topics: map[string]int32{"out": 1}})
	for acks, answered := range map[int16]bool{0: false, -1: true} {
		x := "x"
		req := kmsg.NewPtrProduceRequest()
		req.Version, req.TransactionID, req.Acks, req.TimeoutMillis = 12, &x, acks, 1000
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: "out", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: make([]byte, batchMin)}}}}
		w := dial(ctx, t, c, 0)
		w.send(req)
		if !answered {
			w.wantCut()
			continue
		}
		wantCode(t, "produce of an unknown id", w.receive(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, 49)
	}
}

// A leader knows from its log's markers who is old, whatever the coordinator
// knows.
func TestLeaderRefusesWhatItsLogIsPast(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Topics: map[string]int32{"out": 1}})
	p := producer(t, c)
	write(ctx, t, p, "committed")
	k := key(ctx, t, p)
	if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		epoch int16
		want  int16
	}{{k.ProducerEpoch, codeInvalidProducerEpoch}, {k.ProducerEpoch + 1, 49}} {
		batch := batchTo{to: txn.Partition{Topic: "out"}, writer: txn.Key{ProducerID: k.ProducerID, ProducerEpoch: w.epoch}}
		done, code := c.register(ctx, "nobody", []batchTo{batch})
		done()
		wantCode(t, "produce for an unknown id", code, w.want)
	}
}
