package shareconsumer

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker whose internal topics cannot be created is named by Poll, once and
// within seconds; the member goes on, and works when brokers have joined.
func TestInternalTopics(t *testing.T) {
	for name, tc := range map[string]struct {
		want    broker.InternalReplicas
		setting string
	}{
		"no group coordinator": {broker.InternalReplicas{Offsets: 2}, "offsets.topic.replication.factor"},
		"no share coordinator": {broker.InternalReplicas{ShareState: 2}, "share.coordinator.state.topic.replication.factor"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 60*time.Second)
			b, err := broker.Start(broker.Config{
				Topics: map[string]int32{"in": 1}, OffsetReset: "earliest", HeartbeatInterval: 100 * time.Millisecond, InternalReplicas: tc.want,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(b.Close)
			cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...)), sharetxn.Logger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cl.Close)
			c := &cluster{b, cl}
			c.feedTo(ctx, t, 1, 1)
			m, err := New(cl, "g", Topics("in"), AcknowledgementMode(Explicit))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = m.Close() }()
			_, err = m.Poll(ctx)
			fault, ok := errors.AsType[*sharetxn.InternalTopicsError](err)
			if !ok || sharetxn.ClassOf(err) != sharetxn.ClassAbortable || fault.Brokers != 1 || len(fault.Topics) != 1 ||
				fault.Topics[0].Setting != tc.setting || fault.Topics[0].Replicas != 2 || !strings.Contains(err.Error(), "set "+tc.setting+"=1") {
				t.Fatalf("Poll: %v", err)
			}
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			if _, err := m.Poll(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("told again: %v", err)
			}
			if _, err := b.AddNode(); err != nil {
				t.Fatal(err)
			}
			batch, err := m.Poll(ctx)
			for ; errors.Is(err, sharetxn.ErrStale); batch, err = m.Poll(ctx) { // the embedded broker makes it join again
			}
			if err != nil || len(batch.Records()) != 1 {
				t.Fatalf("after a broker joined: %v, %v", batch, err)
			}
		})
	}
}
