package shareconsumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// gate is a decompressor that takes as long as a test wants: while it is shut,
// nothing that is compressed is decoded.
type gate struct {
	kgo.Decompressor

	mu    sync.Mutex
	way   chan struct{} // closed while it is open
	waits int           // that came while it was shut
	fail  int           // how many of what comes through fail
}

var errGate = errors.New("cannot be decompressed")

// newGate gives an open gate for all consumers that are made afterwards.
func newGate(t *testing.T) *gate {
	g := &gate{Decompressor: decompressor, way: make(chan struct{})}
	close(g.way)
	decompressor = g
	t.Cleanup(func() { decompressor = g.Decompressor }) // their goroutines have ended
	return g
}

func (g *gate) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	g.mu.Lock()
	way := g.way
	select {
	case <-way:
	default:
		g.waits++
	}
	g.mu.Unlock()
	<-way
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fail > 0 {
		g.fail--
		return nil, errGate
	}
	return g.Decompressor.Decompress(src, codec)
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.way = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.way:
	default:
		close(g.way)
	}
}

func (g *gate) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waits
}

// pack produces compressed batches to the first partition.
func (c *cluster) pack(ctx context.Context, t *testing.T, batches, each int) {
	t.Helper()
	p, err := c.cl.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range batches {
		var rs []*kgo.Record
		for range each {
			rs = append(rs, &kgo.Record{Topic: "in", Value: []byte(strings.Repeat("x", 100))})
		}
		if err := p.ProduceSync(ctx, rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// packed gives the session with most answers that are not decoded.
func (c *Consumer) packed() (most *session) {
	for _, s := range c.sessions {
		if most == nil || s.packed > most.packed {
			most = s
		}
	}
	return most
}

// first is the first partition; c.mu is held.
func (c *Consumer) first() partKey {
	for id := range c.topics {
		return partKey{id, 0}
	}
	return partKey{}
}

// The next fetch leaves while the answer before is decoded, and the one behind it
// waits until that is done. What is not decoded counts for MaxBytes; whatever of
// it cannot be decoded is told, given back and delivered again.
func TestFetchesLeaveBeforeAnswersAreDecoded(t *testing.T) {
	const batches, each, most = 60, 100, 1000
	for name, damaged := range map[string]int{"readable": 0, "the first batch is not readable": 1} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			c := startCluster(t, 25*time.Second)
			c.pack(ctx, t, batches, each)
			g := newGate(t)
			m := c.consumer(t, MaxPollRecords(most))
			var order []string // offset and delivery count
			seen, told := make(map[int64]bool), 0
			take := func() {
				b, err := m.Poll(ctx)
				if err != nil {
					if told += len(recordsErrorIn(t, err).Offsets); damaged == 0 || !errors.Is(err, errGate) {
						t.Errorf("Poll: %v", err)
					}
					return
				}
				for _, r := range b.Records() {
					if seen[r.Offset] {
						t.Errorf("%s came twice", where(r))
					}
					seen[r.Offset] = true
					order = append(order, fmt.Sprintf("%04d %d", r.Offset, r.DeliveryCount()))
				}
				b.AcceptRest()
				if err := b.CommitAsync(); err != nil {
					t.Error(err)
				}
			}
			for len(seen) < 2*most { // quick, by now
				take()
			}
			g.shut()
			t.Cleanup(g.open)
			w := c.tap()
			done := make(chan struct{})
			go func() {
				defer close(done)
				for len(seen) < batches*each && ctx.Err() == nil {
					take()
				}
			}()
			testkit.Eventually(ctx, t, "two answers wait, and a poll", func() bool {
				m.mu.Lock()
				defer m.mu.Unlock()
				s := m.packed()
				return s != nil && s.packed == mostPacked+1 && !s.fetches && len(s.buffer) == 0 && m.polling == 1 && g.waiting() > 0
			})
			fetches, _ := w.seen(0, 0)
			if n := len(slices.DeleteFunc(fetches, func(f *kmsg.ShareFetchRequest) bool { return f.MaxWaitMillis > 0 })); n == 0 {
				t.Error("no fetch left in advance")
			}
			m.mu.Lock()
			s := m.packed()
			bytes, parcels := 0, make(map[*parcel]bool)
			for _, l := range m.held[m.first()] {
				if l.parcel != nil && !parcels[l.parcel] {
					parcels[l.parcel] = true
					bytes += len(l.parcel.raw)
				}
			}
			if m.bytes > bytes || m.bytes < bytes*9/10 || bytes == 0 || s.unpolled < 2*each {
				t.Errorf("%d bytes of %d and %d records are counted", m.bytes, bytes, s.unpolled)
			}
			if act := choose(s.view(time.Now())); act == fetchRecords {
				t.Error("a third fetch would leave")
			}
			m.mu.Unlock()
			g.mu.Lock()
			g.fail = damaged
			g.mu.Unlock()
			g.open()
			<-done
			if damaged == 0 && !slices.IsSorted(order) {
				t.Error("records came out of order")
			}
			again := slices.DeleteFunc(order, func(s string) bool { return strings.HasSuffix(s, " 1") })
			if len(again) != damaged*each || (told == 0) != (damaged == 0) {
				t.Errorf("%d records were delivered again, %d offsets told", len(again), told)
			}
			c.waitDone(ctx, t, batches*each)
		})
	}
}

// What is not decoded keeps MaxBytes from being fetched again.
func TestUndecodedAnswersFillMaxBytes(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for limit, want := range map[int]action{100: rest, 1000: fetchRecords} {
		c, s := bookkeeper()
		c.cfg.maxBytes, c.cfg.maxPollRecords, c.polling = limit, 2, 1
		c.pace.saw(time.Nanosecond, 1000)
		in := acks.TopicIDPartition{TopicID: [16]byte{1}, Topic: "in"}
		s.epoch, s.want = 1, map[partKey]acks.TopicIDPartition{keyOf(in): in}
		p := s.acquired(in, make([]byte, 100), []span{{3, 4, 1}}, time.Now(), time.Hour)
		s.deliver([]*parcel{p})
		if act := choose(s.view(time.Now())); act != want || c.bytes != 100 || s.unpolled != 2 {
			t.Errorf("MaxBytes %d: %v, want %v; %d bytes, %d records", limit, act, want, c.bytes, s.unpolled)
		}
		s.deliver([]*parcel{s.acquired(in, nil, []span{{5, 5, 1}}, time.Now(), time.Hour)})
		if act := choose(s.view(time.Now())); act != rest {
			t.Errorf("MaxBytes %d: %v with two answers that are not decoded", limit, act)
		}
		ls := c.carve(keyOf(in), 0, 10)
		c.lose(errRestarted, func(*lease) bool { return true })
		for _, l := range ls {
			c.unbuffer(l) // it was already
		}
		if s.unpack(p); len(ls) != 2 || c.bytes != 0 || s.unpolled != 0 || len(s.buffer) != 0 {
			t.Errorf("lost: %d bytes, %d records on the books", c.bytes, s.unpolled)
		}
	}
}

// In RecordLimit mode, what is not decoded is part of MaxPollRecords.
func TestUndecodedAnswersAreRationed(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	c, s := bookkeeper()
	c.cfg.acquire, c.cfg.maxPollRecords = RecordLimit, 10
	tp := acks.TopicIDPartition{TopicID: [16]byte{1}, Topic: "in"}
	if r := c.ration(s, time.Now()); r.records != 10 {
		t.Fatalf("may ask for %d", r.records)
	}
	s.acquired(tp, nil, []span{{3, 6, 1}}, time.Now(), time.Hour)
	if r := c.ration(s, time.Now()); r.records != 6 {
		t.Fatalf("with 4 that are not decoded it may ask for %d", r.records)
	}
}

// undecoded gives a member whose first answer, of n records, is not decoded, and
// a poll that waits for it; what it gives is sent.
func undecoded(ctx context.Context, t *testing.T, c *cluster, g *gate, n int) (*Consumer, <-chan *Batch) {
	t.Helper()
	g.shut()
	m := c.consumer(t)
	t.Cleanup(g.open)
	polled := make(chan *Batch, 1)
	go func() {
		b, _ := m.Poll(ctx)
		polled <- b
	}()
	testkit.Eventually(ctx, t, "an answer waits to be decoded", func() bool {
		_, _, acquired, _ := c.totals()
		return g.waiting() > 0 && acquired == int64(n)
	})
	return m, polled
}

// Close gives back what is not decoded, and does not wait for that.
func TestCloseWithUndecodedAnswers(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	c.pack(ctx, t, 2, 10)
	g := newGate(t)
	m, polled := undecoded(ctx, t, c, g, 20)
	closed := make(chan error, 1)
	go func() { closed <- m.Close() }()
	testkit.Eventually(ctx, t, "all is available", func() bool {
		_, available, acquired, _ := c.totals()
		return available == 20 && acquired == 0
	})
	if b := <-polled; b != nil {
		t.Errorf("Poll gave %d records", b.Len())
	}
	g.open()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	gather(ctx, t, c.consumer(t), 20)
}

// What was not decoded when the member was fenced, or the session lost, is given
// back and not handed out: it comes as another delivery, or from another member.
func TestFencedWithUndecodedAnswers(t *testing.T) {
	for name, trouble := range map[string]func(*Consumer){
		"fenced":     func(m *Consumer) { m.fenced(errRestarted) },
		"begun anew": func(m *Consumer) { m.mu.Lock(); defer m.mu.Unlock(); m.packed().restart = true; m.wakeSessions() },
		"leader moved": func(m *Consumer) {
			m.mu.Lock()
			s, first := m.packed(), m.first()
			m.mu.Unlock()
			s.moved(first, kerr.NotLeaderForPartition.Code, noLeader)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			lock := 25 * time.Second
			if name == "leader moved" { // then nothing is released: the broker has dropped it, as far as we know
				lock = 500 * time.Millisecond
			}
			c := startCluster(t, lock)
			c.pack(ctx, t, 2, 10)
			g := newGate(t)
			m, polled := undecoded(ctx, t, c, g, 20)
			trouble(m)
			testkit.Eventually(ctx, t, "all is available", func() bool {
				_, available, acquired, _ := c.totals()
				return available == 20 && acquired == 0
			})
			m.mu.Lock()
			if m.bytes != 0 || m.packed().unpolled != 0 {
				t.Errorf("%d bytes and %d records are on the books", m.bytes, m.packed().unpolled)
			}
			m.mu.Unlock()
			g.open()
			n := 0
			for b := <-polled; ; b = poll(ctx, t, m) {
				for _, r := range b.Records() {
					if n++; r.DeliveryCount() != 2 {
						t.Errorf("%s: delivery %d", where(r), r.DeliveryCount())
					}
				}
				b.AcceptRest()
				if err := b.CommitSync(ctx); err != nil {
					t.Fatal(err)
				}
				if n >= 20 {
					break
				}
			}
			c.waitDone(ctx, t, 20)
		})
	}
}

// Locks run while an answer is decoded: what is decoded too late is not handed
// out, but given back.
func TestLocksRunWhileAnswersAreDecoded(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 500*time.Millisecond)
	c.pack(ctx, t, 2, 10)
	g := newGate(t)
	m, polled := undecoded(ctx, t, c, g, 20)
	m.mu.Lock()
	deadline := m.held[m.first()][0].deadline
	m.mu.Unlock()
	testkit.Eventually(ctx, t, "the locks have ended", func() bool { return time.Now().After(deadline) })
	g.open()
	for _, r := range (<-polled).Records() {
		if r.DeliveryCount() < 2 {
			t.Fatalf("%s: delivery %d", where(r), r.DeliveryCount())
		}
	}
}

// Drain waits for what is not decoded, and Poll gives that afterwards.
func TestDrainWaitsForUndecodedAnswers(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	c.pack(ctx, t, 2, 10)
	g := newGate(t)
	pctx, cancel := context.WithCancel(ctx)
	m, polled := undecoded(pctx, t, c, g, 20)
	cancel()
	if b := <-polled; b != nil {
		t.Fatalf("Poll gave %d records", b.Len())
	}
	drained := make(chan error, 1)
	go func() { drained <- m.Drain(ctx) }()
	testkit.Eventually(ctx, t, "no fetch is under way", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.drained && !slices.ContainsFunc(sessionsOf(m), func(s *session) bool { return s.fetches })
	})
	if err := m.Drain(expired(ctx)); !errors.Is(err, context.Canceled) {
		t.Fatalf("drained while an answer is not decoded: %v", err)
	}
	g.open()
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	n := 0
	for b, _ := m.Poll(expired(ctx)); b != nil; b, _ = m.Poll(expired(ctx)) {
		n += b.Len()
	}
	if n != 20 {
		t.Fatalf("%d records, want 20", n)
	}
}

// expired is a context that has ended.
func expired(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}
