package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Warm uses a fresh cluster until its internal topics are there: a broker
// creates them at their first use and refuses what needs them meanwhile.
func Warm(t *testing.T, target Target) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	x := NewX(t, target, "warm/up")
	topic, group := x.Topic(ctx, 1), x.Group(ctx)
	x.Feed(ctx, topic, 0, 1)
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"a transaction", func() error { return x.oneTransaction(ctx, topic) }},
		{"a share group", func() error { return x.oneAcknowledgement(ctx, topic, group) }},
	} {
		tick := time.NewTicker(100 * time.Millisecond)
		for err := step.do(); err != nil; err = step.do() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%s never worked on %s: %v", step.what, target.Name(), err)
			}
		}
		tick.Stop()
	}
}

func (x *X) oneTransaction(ctx context.Context, topic Topic) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(x.Target.Seeds()...), kgo.TransactionalID(x.Fresh("id")), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic.Name, Value: []byte("warm")}).FirstErr(); err != nil {
		return err
	}
	return cl.EndTransaction(ctx, kgo.TryCommit)
}

func (x *X) oneAcknowledgement(ctx context.Context, topic Topic, group string) error {
	m, err := byhand.NewMember(x.Target.Seeds(), group, topic.Name)
	if err != nil {
		return err
	}
	defer m.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := m.Settle(ctx, 1); err != nil {
		return err
	}
	s, p := m.Session(x.Leader(ctx, topic, 0)), topic.Part(0)
	got, err := s.Fetch(ctx, byhand.NewFetch(p))
	if err != nil {
		return err
	}
	part := got.Parts[p]
	if got.Code != 0 || part.Code != 0 || len(part.Acquired) == 0 {
		return fmt.Errorf("fetch: codes %d and %d, %d ranges", got.Code, part.Code, len(part.Acquired))
	}
	acked, err := s.CloseSession(ctx, map[byhand.Partition][]byhand.Ack{p: {{First: part.Acquired[0].First, Last: part.Acquired[0].Last, Types: []int8{1}}}})
	if err != nil {
		return err
	}
	if acked.Code != 0 || acked.Parts[p] != 0 {
		return fmt.Errorf("acknowledge: codes %d and %d", acked.Code, acked.Parts[p])
	}
	left, err := m.Leave(ctx)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(left.ErrorCode)
}
