package sharetxntest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// handle is the handler under test: it passes records on, and rejects empty ones.
func handle(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
	if len(in.Value) == 0 {
		return nil, processor.Reject(errors.New("empty"))
	}
	return []*kgo.Record{{Topic: "out", Value: in.Value}}, nil
}

// A handler is a function: it needs no broker.
func TestHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, err := handle(t.Context(), &processor.Record{Value: []byte("a")})
		if err != nil || len(out) != 1 || out[0].Topic != "out" {
			t.Error(out, err)
		}
	})
}

// The service around it: two records, and the answer to the first commit is lost.
func TestService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sharetxntest.Start(t, sharetxntest.Topic("in", 3), sharetxntest.Group("g", sharetxntest.GroupConfig{ReadCommitted: true}))
		k.Feed(t, &kgo.Record{Topic: "in", Value: []byte("a")}, &kgo.Record{Topic: "in"})
		k.Inject(t, sharetxntest.Fault{Key: sharetxntest.EndTxnKey, Action: sharetxntest.LoseAnswer()})
		p, err := processor.New(k.Connect(t), processor.Config{
			Group: "g", Topics: []string{"in"}, Handler: handle, DeadLetter: processor.DeadLetter{Topic: "dead"},
		})
		if err != nil {
			t.Fatal(err)
		}
		k.RunUntilDrained(t, "g", p)
		k.AssertExactlyOnce(t, "g", "out", "dead")
		if out, dead := k.Committed(t, "out"), k.Committed(t, "dead"); len(out) != 1 || len(dead) != 1 {
			t.Errorf("%d outputs, %d dead letters", len(out), len(dead))
		}
	})
}
