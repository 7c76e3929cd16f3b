package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/brokers"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func start(t *testing.T, n int) (*broker.Cluster, *kgo.Client) {
	t.Helper()
	b, err := broker.Start(broker.Config{Brokers: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Seeds()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return b, cl
}

var errBehind = errors.New("behind")

func never(error) bool { return false }

// A broker that is behind is looked at until it is not; the others once.
func TestAwait(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	_, cl := start(t, 3)
	var mu sync.Mutex
	looks := make(map[int32]int)
	err := brokers.Await(ctx, cl, func(_ context.Context, node int32) error {
		mu.Lock()
		defer mu.Unlock()
		looks[node]++
		if node == 1 && looks[node] < 4 {
			return errBehind
		}
		return nil
	}, never)
	if err != nil || looks[0] != 1 || looks[1] != 4 || looks[2] != 1 {
		t.Errorf("%v, after %v looks", err, looks)
	}
}

// It ends with what the broker that is behind was found to be, not with what a
// look says whose time was up; and at once where waiting mends nothing.
func TestAwaitEnds(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	_, cl := start(t, 2)
	short, cancel := context.WithCancel(ctx)
	looks := 0
	err := brokers.Await(short, cl, func(ctx context.Context, node int32) error {
		if node == 0 {
			return nil
		}
		if looks++; looks == 3 {
			cancel()
			return ctx.Err()
		}
		return errBehind
	}, never)
	if !errors.Is(err, errBehind) || errors.Is(err, context.Canceled) || looks != 3 {
		t.Errorf("%v after %d looks", err, looks)
	}
	looks = 0
	err = brokers.Await(ctx, cl, func(_ context.Context, node int32) error {
		if node == 0 {
			return nil
		}
		looks++
		return fmt.Errorf("for good: %w", errBehind)
	}, func(err error) bool { return errors.Is(err, errBehind) })
	if !errors.Is(err, errBehind) || looks != 1 {
		t.Errorf("%v after %d looks", err, looks)
	}
}

// No brokers in the metadata are no brokers seen.
func TestLive(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	b, cl := start(t, 3)
	got, err := brokers.Live(ctx, cl)
	slices.Sort(got)
	if err != nil || !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("%v, %v", got, err)
	}
	b.SetIntercept(func(r broker.Request) broker.Action {
		if m, ok := r.Message().(*kmsg.MetadataRequest); ok {
			return broker.Action{Answer: m.ResponseKind()}
		}
		return broker.Action{}
	})
	if got, err := brokers.Live(ctx, cl); !errors.Is(err, brokers.ErrNone) {
		t.Errorf("%v, %v", got, err)
	}
}
