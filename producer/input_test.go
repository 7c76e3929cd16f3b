package producer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/groupmeta"
	"github.com/sharetxn/sharetxn/internal/bind"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestNewRefuses(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	for _, c := range []struct {
		name string
		id   string
		opts []Opt
		text string
	}{
		{"no id", "", nil, "transactional id: empty"},
		{"a blank id", " \t", nil, "transactional id: empty"},
		{"an over-long id", strings.Repeat("x", 16383), nil, "transactional id: longer than 16382"},
		{"an id that is no text", "a\xff", nil, "transactional id: not UTF-8"},
		{"no transaction timeout", "tx", []Opt{TransactionTimeout(0)}, "TransactionTimeout"},
		{"a negative transaction timeout", "tx", []Opt{TransactionTimeout(-time.Second)}, "TransactionTimeout"},
		{"a transaction timeout that no request can hold", "tx", []Opt{TransactionTimeout(1 << 62)}, "TransactionTimeout"},
		{"a margin as long as the transaction", "tx", []Opt{TransactionTimeout(time.Second), LockMargin(time.Second)}, "LockMargin"},
		{"a negative margin", "tx", []Opt{LockMargin(-1)}, "LockMargin"},
		{"a negative stage timeout", "tx", []Opt{StageTimeout(-1)}, "StageTimeout"},
		{"no resolve timeout", "tx", []Opt{ResolveTimeout(0)}, "ResolveTimeout"},
		{"no close timeout", "tx", []Opt{CloseTimeout(0)}, "CloseTimeout"},
		{"another transactional id", "tx", []Opt{KafkaOptions(kgo.TransactionalID("other"))}, "kgo.TransactionalID"},
		{"another transaction timeout", "tx", []Opt{KafkaOptions(kgo.TransactionTimeout(time.Minute))}, "kgo.TransactionTimeout"},
		{"fewer acks", "tx", []Opt{KafkaOptions(kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())}, "kgo."},
		{"no idempotence", "tx", []Opt{KafkaOptions(kgo.DisableIdempotentWrite())}, "kgo.DisableIdempotentWrite"},
		{"a consumer group", "tx", []Opt{KafkaOptions(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"))}, "kgo.Consume"},
		{"a share group", "tx", []Opt{KafkaOptions(kgo.ShareGroup("g"), kgo.ConsumeTopics("in"))}, "kgo."},
		{"other brokers", "tx", []Opt{KafkaOptions(kgo.SeedBrokers("127.0.0.1:1"))}, "kgo.SeedBrokers"},
		{"what kgo itself refuses", "tx", []Opt{KafkaOptions(kgo.MaxBufferedRecords(-1))}, "KafkaOptions"},
	} {
		p, err := New(w.cl, c.id, c.opts...)
		if sharetxn.ClassOf(err) != sharetxn.ClassUsage || !errors.Is(err, sharetxn.ErrUsage) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want a usage error on %q", c.name, err, c.text)
		}
		if p != nil {
			t.Errorf("%s: gave a producer", c.name)
		}
	}
	if _, err := New(nil, "tx"); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
		t.Errorf("no cluster: %v", err)
	}
	gone := w.connect(t)
	gone.Close()
	if _, err := New(gone, "tx"); !errors.Is(err, sharetxn.ErrClosed) || !sharetxn.IsFatal(err) {
		t.Errorf("a closed cluster: %v", err)
	}
	ok := w.producer(t, strings.Repeat("x", 16382), KafkaOptions(kgo.ProducerLinger(time.Millisecond), kgo.ProducerBatchCompression(kgo.ZstdCompression())))
	w.works(ctx, t, ok, "it")
}

func TestUseRefused(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	w.feed(ctx, t, 6)
	c, p := w.consumer(t, "g"), w.producer(t, "tx")
	bs := gather(ctx, t, c, 6)
	elsewhere, err := New(w.connect(t), "elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = elsewhere.Close() })
	if _, err := elsewhere.Begin(ctx, bs[0]); !errors.Is(err, sharetxn.ErrStale) {
		t.Errorf("a batch of another cluster: %v", err)
	}
	if _, err := p.Begin(ctx, bs[0], bs[0]); !errors.Is(err, sharetxn.ErrStale) {
		t.Errorf("a batch twice: %v", err)
	}
	tx, err := p.Begin(ctx, bs[0])
	if err != nil {
		t.Fatalf("after refused ones: %v", err)
	}
	if _, err := p.Begin(ctx); !errors.Is(err, sharetxn.ErrTxnOpen) || sharetxn.ClassOf(err) != sharetxn.ClassUsage {
		t.Errorf("Begin while one is open: %v", err)
	}
	if err := p.InitTransactions(ctx); !errors.Is(err, sharetxn.ErrTxnOpen) {
		t.Errorf("InitTransactions while one is open: %v", err)
	}
	other := w.producer(t, "other")
	if _, err := other.Begin(ctx, bs[0]); !errors.Is(err, sharetxn.ErrStale) {
		t.Errorf("a batch that another transaction holds: %v", err)
	}
	bs[0].AcceptRest()
	if out, err := tx.Commit(ctx); out != sharetxn.Committed || err != nil {
		t.Fatalf("%v, %v", out, err)
	}
	if _, err := p.Begin(ctx, bs[0]); !errors.Is(err, sharetxn.ErrStale) {
		t.Errorf("a batch that is committed: %v", err)
	}
	for name, err := range map[string]error{
		"Produce": tx.Produce(ctx, &kgo.Record{Topic: "out"}),
		"Send":    tx.SendShareAcknowledgementsToTransaction(ctx, nil, c.ShareGroupMetadata()),
	} {
		if !errors.Is(err, sharetxn.ErrTxnEnded) || sharetxn.ClassOf(err) != sharetxn.ClassUsage {
			t.Errorf("%s after the end: %v", name, err)
		}
	}
	if out, err := tx.Commit(ctx); out != sharetxn.Unknown || !errors.Is(err, sharetxn.ErrTxnEnded) {
		t.Errorf("Commit after the end: %v, %v", out, err)
	}
	if err := tx.Abort(ctx); err != nil || tx.Err() != nil {
		t.Errorf("Abort after the end: %v, Err %v", err, tx.Err())
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := p.Begin(ctx); !errors.Is(err, sharetxn.ErrClosed) || !sharetxn.IsFatal(err) {
		t.Errorf("Begin after Close: %v", err)
	}
	if err := p.InitTransactions(ctx); !errors.Is(err, sharetxn.ErrClosed) {
		t.Errorf("InitTransactions after Close: %v", err)
	}
	if out, err := p.InTransaction(ctx, nil, func(context.Context, *Txn) error { return nil }); out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrClosed) {
		t.Errorf("InTransaction after Close: %v, %v", out, err)
	}
	if err := tx.Abort(ctx); err != nil {
		t.Errorf("Abort after Close: %v", err)
	}
}

// What cannot be sent to a transaction is refused before anything leaves, and
// the transaction does not commit without it.
func TestSendRefuses(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 9)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		b := poll(ctx, t, c)
		tp, offset := b.Records()[0].Position()
		one := func(types ...acks.Type) map[acks.TopicIDPartition][]acks.AcknowledgementBatch {
			return map[acks.TopicIDPartition][]acks.AcknowledgementBatch{tp: {{FirstOffset: offset, LastOffset: offset, Types: types}}}
		}
		ranges := func(bs ...acks.AcknowledgementBatch) map[acks.TopicIDPartition][]acks.AcknowledgementBatch {
			return map[acks.TopicIDPartition][]acks.AcknowledgementBatch{tp: bs}
		}
		accept := []acks.Type{acks.Accept}
		me := c.ShareGroupMetadata()
		stranger, err := groupmeta.New("g", "stranger", 1)
		if err != nil {
			t.Fatal(err)
		}
		until := LockUntil(time.Now().Add(20 * time.Second))
		if err := p.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		stages, ends := w.stages(), w.Traffic(keyEndTxn).Requests
		for _, c := range []struct {
			name    string
			batches map[acks.TopicIDPartition][]acks.AcknowledgementBatch
			member  groupmeta.ShareGroupMetadata
			opts    []SendOpt
			is      error // nil: class usage
		}{
			{"Release", one(acks.Release), me, nil, nil},
			{"Renew", one(acks.Renew), me, nil, nil},
			{"Gap", one(acks.Gap), me, nil, nil},
			{"an unknown type", one(9), me, nil, nil},
			{"no type", one(), me, nil, nil},
			{"no range", ranges(), me, nil, nil},
			{"a negative offset", ranges(acks.AcknowledgementBatch{FirstOffset: -1, LastOffset: 0, Types: accept}), me, nil, nil},
			{"an inverted range", ranges(acks.AcknowledgementBatch{FirstOffset: 5, LastOffset: 4, Types: accept}), me, nil, nil},
			{"overlapping ranges", ranges(acks.AcknowledgementBatch{FirstOffset: 0, LastOffset: 4, Types: accept}, acks.AcknowledgementBatch{FirstOffset: 4, LastOffset: 5, Types: accept}), me, nil, nil},
			{"nobody", one(acks.Accept), groupmeta.ShareGroupMetadata{}, []SendOpt{until}, nil},
			{"a stranger without a lock", one(acks.Accept), stranger, nil, nil},
			{"an offset that is not held", ranges(acks.AcknowledgementBatch{FirstOffset: 1000, LastOffset: 1000, Types: accept}), me, []SendOpt{until}, sharetxn.ErrStale},
			{"a range that is not held, and huge", ranges(acks.AcknowledgementBatch{FirstOffset: 0, LastOffset: 1 << 60, Types: accept}), me, nil, sharetxn.ErrStale},
		} {
			out, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
				err := tx.SendShareAcknowledgementsToTransaction(ctx, c.batches, c.member, c.opts...)
				if c.is == nil && sharetxn.ClassOf(err) != sharetxn.ClassUsage || c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("%s: %v", c.name, err)
				}
				return nil // passed over
			})
			if out != sharetxn.Aborted || err == nil {
				t.Errorf("%s: committed without it: %v, %v", c.name, out, err)
			}
		}
		if s, e := w.stages(), w.Traffic(keyEndTxn).Requests; s != stages || e != ends {
			t.Errorf("%d staging requests and %d EndTxn were sent", s-stages, e-ends)
		}
		// The same offset twice, the second time when the transaction holds it.
		out, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
			if err := tx.SendShareAcknowledgementsToTransaction(ctx, one(acks.Accept), me); err != nil {
				return err
			}
			return tx.SendShareAcknowledgementsToTransaction(ctx, one(acks.Accept), me)
		})
		if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrStale) {
			t.Errorf("sent twice: %v, %v", out, err)
		}
		out, err = p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
			return tx.SendShareAcknowledgementsToTransaction(ctx, one(acks.Accept), me)
		})
		if out != sharetxn.Committed || err != nil {
			t.Errorf("after all that: %v, %v", out, err)
		}
	})
}

func TestProduceRefuses(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx", KafkaOptions(kgo.UnknownTopicRetries(1)))
	for name, rs := range map[string][]*kgo.Record{
		"nil":             {nil},
		"without a topic": {{Value: []byte("x")}},
		"too large":       {{Topic: "out", Value: make([]byte, 4<<20)}},
		"unknown topic":   {{Topic: "nowhere", Value: []byte("x")}},
	} {
		out, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
			if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("beside it")}); err != nil {
				return err
			}
			_ = tx.Produce(ctx, rs...)
			return nil // passed over
		})
		if out != sharetxn.Aborted || err == nil {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
	if out, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error { return tx.Produce(ctx) }); out != sharetxn.Committed || err != nil {
		t.Errorf("no records: %v, %v", out, err)
	}
	w.works(ctx, t, p, "it")
	same(t, "visible outputs", w.visible(ctx, t, "out"), "it")
}

// Where the brokers cannot stage, a transaction with acknowledgements fails
// before anything is sent on the staging key of either profile, and one that
// only produces works.
func TestUnsupported(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		for name, edit := range map[string]func(*broker.Config){
			"stock Kafka 4.4":       func(c *broker.Config) { c.Stock44 = true },
			"one of three lacks it": func(c *broker.Config) { c.LacksStaging = []int32{1} },
		} {
			t.Run(name, func(t *testing.T) {
				ctx := testkit.Deadline(t, 30*time.Second)
				w := start(t, setup{profile: profile, edit: edit})
				w.feed(ctx, t, 3)
				c, p := w.consumer(t, "g"), w.producer(t, "tx")
				b := poll(ctx, t, c)
				check := func(what string, err error) {
					t.Helper()
					var u *sharetxn.UnsupportedError
					if !errors.Is(err, sharetxn.ErrUnsupported) || !sharetxn.IsFatal(err) || !errors.As(err, &u) || len(u.Found.Brokers) != 3 {
						t.Errorf("%s: %v", what, err)
					}
				}
				check("InitTransactions", p.InitTransactions(ctx))
				_, err := p.Begin(ctx, b)
				check("Begin with a batch", err)
				out, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
					set, err := acks.FromRecords(b.Records(), acks.Accept)
					if err != nil {
						return err
					}
					err = tx.SendShareAcknowledgementsToTransaction(ctx, set.Map(), c.ShareGroupMetadata())
					check("the KIP's form", err)
					return err
				})
				if out != sharetxn.Aborted {
					t.Errorf("the KIP's form: %v, %v", out, err)
				}
				w.works(ctx, t, p, "it")
				for _, key := range []int16{93, 95} {
					if got := w.Traffic(key); got.Requests != 0 || got.Bytes != 0 {
						t.Errorf("key %d: %+v", key, got)
					}
				}
				same(t, "visible outputs", w.visible(ctx, t, "out"), "it")
			})
		}
	})
}

// fakeBatch is a batch whose handle refuses as told.
type fakeBatch struct {
	bind.Handle
	hold    error
	settled []bind.Settlement
}

func (f *fakeBatch) Bind() bind.Handle        { return f }
func (f *fakeBatch) Hold() error              { return f.hold }
func (f *fakeBatch) Keep()                    {}
func (f *fakeBatch) Settle(s bind.Settlement) { f.settled = append(f.settled, s) }

// If one of several batches cannot be held, those before it are given back.
func TestHoldIsAllOrNothing(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 3)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		b := poll(ctx, t, c)
		good, bad := &fakeBatch{Handle: b.Bind()}, &fakeBatch{Handle: b.Bind(), hold: sharetxn.ErrStale}
		if _, err := p.Begin(ctx, good, bad); !errors.Is(err, sharetxn.ErrStale) {
			t.Fatalf("Begin: %v", err)
		}
		if len(good.settled) != 1 || sharetxn.Outcome(good.settled[0].Outcome) != sharetxn.Aborted || len(bad.settled) != 0 {
			t.Errorf("settled %v and %v", good.settled, bad.settled)
		}
		if out, err := p.InTransaction(ctx, b, func(context.Context, *Txn) error { b.AcceptRest(); return nil }); out != sharetxn.Committed || err != nil {
			t.Errorf("after it: %v, %v", out, err)
		}
	})
}

func TestJoin(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	a, b, c := &fakeBatch{}, &fakeBatch{}, &fakeBatch{}
	for _, x := range []struct {
		name string
		in   []Acknowledgements
		want []bind.Handle
	}{
		{"nothing", nil, nil},
		{"nil", []Acknowledgements{nil}, nil},
		{"empty joins", []Acknowledgements{Join(), Join(nil, Join())}, nil},
		{"one", []Acknowledgements{a}, []bind.Handle{a}},
		{"joins of joins", []Acknowledgements{Join(a, Join(b)), Join(Join(Join(c)), nil)}, []bind.Handle{a, b, c}},
	} {
		got := handles(x.in)
		if len(got) != len(x.want) {
			t.Fatalf("%s: %d handles", x.name, len(got))
		}
		for i := range got {
			if got[i] != x.want[i] {
				t.Errorf("%s: another handle at %d", x.name, i)
			}
		}
	}
}
