package core_test

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/probe"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

func cluster(t *testing.T) *core.Cluster {
	t.Helper()
	c := core.New(core.Config{Kafka: []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1")}, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(c.Close)
	return c
}

func closed(cl *kgo.Client) bool { return cl.Context().Err() != nil }

// A client that is behind is replaced once, and closed when nobody uses it any
// more; whoever finds the new one behind as well is told so.
func TestUseReplacesAClientThatIsBehind(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	c := cluster(t)
	behind := fmt.Errorf("asking: %w", probe.ErrBehind)
	var seen []*kgo.Client
	err := c.Use(func(outer *kgo.Client) error {
		err := c.Use(func(cl *kgo.Client) error {
			seen = append(seen, cl)
			if len(seen) == 1 {
				return behind
			}
			return nil
		})
		if closed(outer) {
			t.Error("closed while it is used")
		}
		return err
	})
	if err != nil || len(seen) != 2 || seen[0] == seen[1] {
		t.Fatalf("%v, with %d clients", err, len(seen))
	}
	if !closed(seen[0]) || closed(seen[1]) {
		t.Errorf("closed: the old one %v, the new one %v", closed(seen[0]), closed(seen[1]))
	}
	again := 0
	if err := c.Use(func(*kgo.Client) error { again++; return behind }); !errors.Is(err, probe.ErrBehind) || again != 2 {
		t.Errorf("a new one that is behind: %v after %d tries", err, again)
	}
	other := errors.New("on purpose")
	again = 0
	if err := c.Use(func(*kgo.Client) error { again++; return other }); !errors.Is(err, other) || again != 1 {
		t.Errorf("another error: %v after %d tries", err, again)
	}
	c.Close()
	if err := c.Use(func(*kgo.Client) error { return nil }); !errors.Is(err, core.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Many find the same client behind at once: all go on with one new client.
func TestUseConcurrently(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	c := cluster(t)
	var (
		wg, all sync.WaitGroup
		mu      sync.Mutex
	)
	clients := make(map[*kgo.Client]int)
	const n = 8
	all.Add(n)
	for range n {
		wg.Go(func() {
			first := true
			err := c.Use(func(cl *kgo.Client) error {
				if closed(cl) {
					t.Error("a client that is closed")
				}
				mu.Lock()
				clients[cl]++
				mu.Unlock()
				if first {
					first = false
					all.Done()
					all.Wait()
					return probe.ErrBehind
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(clients) != 2 {
		t.Fatalf("%d clients, want the old and the new one", len(clients))
	}
	for cl, uses := range clients {
		if uses != n {
			t.Errorf("a client was used %d times, want %d", uses, n)
		}
		cl.Close()
	}
}
