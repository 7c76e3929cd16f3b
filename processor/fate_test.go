package processor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestAfterFailure(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		giveUp     bool
		failures   int
		deliveries int32
		want       next
	}{
		{false, 1, 1, again}, {false, 2, 1, again}, {false, 3, 1, goBack}, {false, 4, 1, goBack},
		{false, 2, 5, again}, {false, 3, 4, goBack}, {false, 3, 5, giveUp}, {false, 3, 6, giveUp},
		{true, 2, 1, again}, {true, 3, 1, giveUp}, {true, 3, 5, giveUp},
	} {
		f := Failure{Attempts: 3, GiveUp: c.giveUp}
		if got := f.afterFailure(history{c.failures, c.deliveries, 5}); got != c.want {
			t.Errorf("give up %v, failure %d in delivery %d of 5: %v, want %v", c.giveUp, c.failures, c.deliveries, got, c.want)
		}
	}
	for deliveries, want := range map[int32]next{1: goBack, 4: goBack, 5: giveUp, 6: giveUp} {
		if got := afterRelease(history{deliveries: deliveries, limit: 5}); got != want {
			t.Errorf("release in delivery %d of 5: %v, want %v", deliveries, got, want)
		}
	}
}

func TestApart(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		records, aborts int
		own             bool
		parts           int
		failed          bool
	}{
		{1, 1, false, 1, false}, {1, 9, false, 1, false}, {1, 1, true, 1, true},
		{2, 1, false, 1, false}, {2, 2, false, 2, false}, {2, 1, true, 2, false},
		{500, 1, false, 1, false}, {500, 2, false, 2, false}, {500, 1, true, 2, false},
	} {
		if parts, failed := apart(c.records, c.aborts, c.own); parts != c.parts || failed != c.failed {
			t.Errorf("apart(%d, %d, %v) = %d, %v; want %d, %v", c.records, c.aborts, c.own, parts, failed, c.parts, c.failed)
		}
	}
}

func TestOwnFault(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	produce := func(err error) error {
		e := &sharetxn.Error{Op: "Produce", Class: sharetxn.ClassAbortable, Topic: "out", Err: err}
		if ke, ok := errors.AsType[*kerr.Error](err); ok {
			e.Code, e.FromBroker = ke.Code, true
		}
		return &sharetxn.Error{Op: "Commit", Class: sharetxn.ClassAbortable, Err: fmt.Errorf("%w: %w", sharetxn.ErrAborted, e)}
	}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"none":             {nil, false},
		"another error":    {errors.New("x"), false},
		"lock":             {fmt.Errorf("%w: %w", sharetxn.ErrAborted, sharetxn.ErrLockExpired), false},
		"too large":        {produce(kerr.MessageTooLarge), true},
		"no such topic":    {produce(kerr.UnknownTopicOrPartition), true},
		"not allowed":      {produce(kerr.TopicAuthorizationFailed), true},
		"invalid":          {produce(kerr.InvalidRecord), true},
		"replicas":         {produce(kerr.NotEnoughReplicas), false},
		"leader":           {produce(kerr.NotLeaderForPartition), false},
		"fenced":           {produce(kerr.InvalidProducerEpoch), false},
		"transaction gone": {produce(kerr.InvalidTxnState), false},
		"unknown error":    {produce(kerr.UnknownServerError), false},
		"time":             {produce(kgo.ErrRecordTimeout), false},
		"context":          {produce(context.DeadlineExceeded), false},
		"client's refusal": {produce(errors.New("record too odd")), true},
		"usage":            {&sharetxn.Error{Op: "Produce", Class: sharetxn.ClassUsage, Err: sharetxn.ErrUsage}, true},
		"joined":           {errors.Join(errors.New("x"), produce(kerr.MessageTooLarge)), true},
		"stage":            {&sharetxn.Error{Op: "TxnShareAcknowledge", Class: sharetxn.ClassAbortable, FromBroker: true, Code: 121, Err: kerr.InvalidRecordState}, false},
	} {
		if got := ownFault(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for attempt, mid := range map[int]time.Duration{1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 6: 3200 * time.Millisecond, 7: 5 * time.Second, 1000: 5 * time.Second} {
		for range 100 {
			if d := backoff(attempt); d < mid*3/4 || d > mid*5/4 {
				t.Fatalf("backoff(%d) = %v, want %v within a quarter", attempt, d, mid)
			}
		}
	}
}
