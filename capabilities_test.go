package sharetxn_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/twmb/franz-go/pkg/kgo"
)

func embedded(t *testing.T, cfg broker.Config) (*broker.Cluster, *sharetxn.Cluster) {
	t.Helper()
	b, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...)), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return b, cl
}

func TestCapabilitiesProvesStaging(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	b, cl := embedded(t, broker.Config{Brokers: 3})
	if cl.ID() != "" {
		t.Fatal("an id before anything was asked")
	}
	for range 2 {
		caps, err := cl.Capabilities(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !caps.SupportsStaging() || caps.Staging != sharetxn.ProfileDraft95 || caps.TransactionVersion != 2 || caps.ShareVersion != 3 || len(caps.Brokers) != 3 {
			t.Fatalf("%+v", caps)
		}
		for i, r := range caps.Brokers {
			if r.NodeID != int32(i) || !r.Proven || r.Reason != "" || r.MaxVer != 0 {
				t.Fatalf("%+v", r)
			}
		}
	}
	if n := b.Traffic(95).Requests; n != 3 {
		t.Fatalf("%d handshakes, want one per broker: proofs are kept", n)
	}
	if cl.ID() == "" {
		t.Fatal("no cluster id")
	}
}

// A broker that went and came back is asked again, the others are not.
func TestProofEndsWithTheConnection(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	b, cl := embedded(t, broker.Config{Brokers: 3})
	if _, err := cl.Capabilities(ctx); err != nil {
		t.Fatal(err)
	}
	b.StopNode(1)
	if err := b.StartNode(1); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(ctx, t, "a fourth handshake", func() bool {
		caps, err := cl.Capabilities(ctx)
		return err == nil && caps.SupportsStaging() && b.Traffic(95).Requests == 4
	})
}

// Against a stock Kafka, or where one broker lacks the key, nothing is sent on
// the keys whose meaning is not proven, and the error names each broker.
func TestFailFast(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  broker.Config
		says []string
	}{
		"stock Kafka 4.4": {broker.Config{Brokers: 3, Stock44: true}, []string{"broker 0: does not advertise key 95", "broker 1: does", "broker 2: does", "found share.version 2"}},
		"one of three":    {broker.Config{Brokers: 3, LacksStaging: []int32{1}}, []string{"broker 0: advertises key 95; not asked", "broker 1: does not advertise key 95"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			c.cfg.Topics = map[string]int32{"out": 1}
			b, cl := embedded(t, c.cfg)
			p, err := producer.New(cl, "id")
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			err = p.InitTransactions(ctx)
			var u *sharetxn.UnsupportedError
			if !errors.Is(err, sharetxn.ErrUnsupported) || !errors.As(err, &u) || !sharetxn.IsFatal(err) || len(u.Found.Brokers) != 3 {
				t.Fatalf("%v", err)
			}
			for _, part := range c.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q lacks %q", err, part)
				}
			}
			// the neighbouring case: producing alone works there
			_, err = p.InTransaction(ctx, nil, func(ctx context.Context, txn *producer.Txn) error {
				return txn.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("x")})
			})
			if err != nil {
				t.Fatalf("a transaction that only produces: %v", err)
			}
			for _, key := range []int16{93, 95} {
				if n := b.Traffic(key); n.Bytes != 0 {
					t.Errorf("%d requests with %d bytes went out on key %d", n.Requests, n.Bytes, key)
				}
			}
			if b.Traffic(26).Requests == 0 {
				t.Error("the counter does not count")
			}
		})
	}
}

// The imitation cuts connections as Kafka does, and counts: otherwise the test
// above could not fail.
func TestImitationCountsAndCuts(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	b, _ := embedded(t, broker.Config{Stock44: true})
	for _, key := range []byte{93, 95} {
		c, err := net.Dial("tcp", b.Seeds()[0])
		if err != nil {
			t.Fatal(err)
		}
		frame := []byte{0, 0, 0, 11, 0, key, 0, 0, 0, 0, 0, 1, 0, 0, 0}
		if _, err := c.Write(frame); err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(c); err != nil || len(answer) > 0 {
			t.Errorf("key %d: answered %d bytes, %v", key, len(answer), err)
		}
		_ = c.Close()
		if n := b.Traffic(int16(key)); n.Requests != 1 || n.Bytes != int64(len(frame)) {
			t.Errorf("key %d: counted %+v", key, n)
		}
	}
}

// An answer on the key that is not exactly ours proves nothing.
func TestHandshakeMustDecode(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	b, cl := embedded(t, broker.Config{Brokers: 2})
	b.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key == 95 && r.Node == 1 {
			return broker.Action{LoseAnswer: true}
		}
		return broker.Action{}
	})
	caps, err := cl.Capabilities(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if caps.SupportsStaging() || !caps.Brokers[0].Proven || caps.Brokers[1].Proven || !strings.Contains(caps.Brokers[1].Reason, "handshake") {
		t.Fatalf("%+v", caps)
	}
}
