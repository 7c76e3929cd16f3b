package broker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Newer brokers may add tagged fields to any structure: nothing of ours minds.
func TestUnknownTagsTolerated(t *testing.T) {
	for _, p := range profiles {
		t.Run(p.wire.String(), func(t *testing.T) {
			ctx := testkit.Deadline(t, 60*time.Second)
			w := begin(t, p.root, broker.Config{Profile: p.wire, UnknownTags: true})
			cl, err := w.cl.Client()
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl)
			if err != nil || resp.UnknownTags.Len() == 0 {
				t.Fatalf("nothing is unknown: %+v, %v", resp, err)
			}
			for partition := range int32(3) {
				w.copyNext(ctx, partition)
			}
			if err := w.abortOne(ctx); err != nil {
				t.Fatal(err)
			}
			w.plain(ctx, "beside")
			w.wantClean(ctx)
		})
	}
}

// abortOne aborts a transaction that has outputs, and does its work again.
func (w *world) abortOne(ctx context.Context) error {
	w.feed(ctx, 0)
	b := w.poll(ctx)
	why := errors.New("on purpose")
	outcome, err := w.producer.InTransaction(ctx, b, func(ctx context.Context, tx *producer.Txn) error {
		if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("never")}); err != nil {
			return err
		}
		return why
	})
	if outcome != sharetxn.Aborted || !errors.Is(err, why) {
		return fmt.Errorf("%v: %w", outcome, err)
	}
	return w.copy(ctx, b) // nothing was staged: it is still held
}

// plain reads all of "in" with a share consumer that renews, and acknowledges
// without transactions.
func (w *world) plain(ctx context.Context, group string, opts ...shareconsumer.Opt) {
	w.t.Helper()
	c, err := shareconsumer.New(w.cl, group, append([]shareconsumer.Opt{
		shareconsumer.Topics("in"), shareconsumer.MaxWait(50 * time.Millisecond), shareconsumer.AcknowledgementMode(shareconsumer.Explicit),
	}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	for seen := 0; seen < w.fed; {
		b, err := c.Poll(ctx)
		if err != nil {
			w.t.Fatalf("poll: %v", err)
		}
		seen += len(b.Records())
		for _, r := range b.Records() {
			r.Accept()
		}
		if err := b.CommitSync(ctx); err != nil {
			w.t.Fatalf("commit: %v", err)
		}
	}
	if err := c.Close(); err != nil {
		w.t.Errorf("close: %v", err)
	}
}

// sent is what brokers got that they never offered, or that was not exactly what
// its version says.
type sent struct {
	mu     sync.Mutex
	offers map[int16]int16 // highest version by key
	wrong  map[string]error
	keys   map[int16]int16 // version used last
}

func (s *sent) look(r broker.Request) broker.Action {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[r.Key] = r.Version
	const apiVersions = 18 // is negotiated by itself
	if most, offered := s.offers[r.Key]; s.offers != nil && r.Key != apiVersions && (!offered || r.Version > most) {
		s.wrong[fmt.Sprintf("key %d version %d", r.Key, r.Version)] = errors.New("never offered")
	}
	if err := r.Exact(); err != nil {
		s.wrong[fmt.Sprintf("key %d version %d", r.Key, r.Version)] = err
	}
	return broker.Action{}
}

// expect asks a broker what it offers.
func (s *sent) expect(ctx context.Context, t *testing.T, cl *sharetxn.Cluster) {
	t.Helper()
	plain, err := cl.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, plain)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offers = make(map[int16]int16)
	for _, k := range resp.ApiKeys {
		s.offers[k.ApiKey] = k.MaxVersion
	}
}

// Whatever brokers offer, nothing is sent that they cannot read: it works, or it
// fails with ErrUnsupported, but never for a connection that a broker cut.
func TestOlderVersions(t *testing.T) {
	const (
		produce, fetch, metadata, findCoordinator, initProducerID, addPartitions, shareFetch, shareAck, describeConfigs = 0, 1, 3, 10, 22, 24, 78, 79, 32
	)
	type versions map[int16]int16
	kafka39 := versions{76: -1, 77: -1, shareFetch: -1, shareAck: -1, 90: -1, 91: -1, 92: -1, keyEndTxn: 4, produce: 11, 28: 4, 95: -1}
	for _, tc := range []struct {
		name          string
		max           versions
		noStaging     bool // ErrUnsupported from the producer
		noShareGroups bool // ErrUnsupported from the consumer
	}{
		{name: "all there is"},
		{name: "share APIs of Kafka 4.1", max: versions{shareFetch: 1, shareAck: 1, 90: 0}},
		{name: "FindCoordinator of one key", max: versions{findCoordinator: 3}},
		{name: "FindCoordinator, not flexible", max: versions{findCoordinator: 2}},
		{name: "InitProducerId 4", max: versions{initProducerID: 4}},
		{name: "InitProducerId 3", max: versions{initProducerID: 3}},
		{name: "no DescribeTransactions", max: versions{65: -1}, noStaging: true},
		{name: "Metadata 12", max: versions{metadata: 12, fetch: 13}},
		{name: "no config requests", max: versions{describeConfigs: -1, 44: -1}},
		{name: "AddPartitionsToTxn withheld", max: versions{addPartitions: -1}},
		{name: "Produce 11", max: versions{produce: 11}, noStaging: true},
		{name: "InitProducerId 2", max: versions{initProducerID: 2}, noStaging: true},
		{name: "EndTxn 4", max: versions{keyEndTxn: 4}, noStaging: true},
		{name: "EndTxn 0", max: versions{keyEndTxn: 0}, noStaging: true},
		{name: "no EndTxn", max: versions{keyEndTxn: -1}, noStaging: true},
		{name: "no InitProducerId", max: versions{initProducerID: -1}, noStaging: true},
		{name: "no ShareFetch", max: versions{shareFetch: -1}, noShareGroups: true},
		{name: "early access share APIs", max: versions{76: 0, shareFetch: 0, shareAck: 0}, noShareGroups: true},
		{name: "Metadata without topic ids", max: versions{metadata: 9}, noShareGroups: true},
		{name: "Kafka 3.9", max: kafka39, noStaging: true, noShareGroups: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 40*time.Second)
			s := &sent{wrong: make(map[string]error), keys: make(map[int16]int16)}
			w := begin(t, sharetxn.ProfileDraft95, broker.Config{MaxVersions: tc.max, Intercept: s.look})
			s.expect(ctx, t, w.cl)
			for key, most := range tc.max {
				if got, offered := s.offers[key]; offered != (most >= 0) && most != 0 || offered && got != most {
					t.Errorf("key %d is offered up to %d, want %d", key, got, most)
				}
			}
			err := w.producer.InitTransactions(ctx)
			if unsupported := errors.Is(err, sharetxn.ErrUnsupported); unsupported != tc.noStaging || (err != nil) != tc.noStaging {
				t.Errorf("InitTransactions: %v", err)
			}
			w.feed(ctx, 1)
			switch {
			case tc.noShareGroups:
				if b, err := w.consumer.Poll(ctx); !errors.Is(err, sharetxn.ErrUnsupported) || !sharetxn.IsFatal(err) {
					t.Errorf("Poll: %v, %v", b, err)
				}
			case tc.noStaging:
				w.plain(ctx, "plain")
			default:
				if err := w.copy(ctx, w.poll(ctx)); err != nil {
					t.Fatalf("copy: %v", err)
				}
				if err := w.abortOne(ctx); err != nil {
					t.Fatal(err)
				}
				w.plain(ctx, "plain")
				w.wantClean(ctx)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for what, err := range s.wrong {
				t.Errorf("%s was sent: %v", what, err)
			}
			t.Logf("versions used: %v", maps.Collect(maps.All(s.keys)))
		})
	}
}
