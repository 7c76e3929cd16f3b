package broker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Where ports were given, brokers that join take the ones above, also on a
// virtual network, and come back at them.
func TestJoinAtPorts(t *testing.T) {
	testkit.Deadline(t, 60*time.Second)
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		var network kfake.VirtualNetwork
		c := start(t, Config{Brokers: 2, Ports: []int{9192, 9092}, Listen: network.Listen, Topics: map[string]int32{"in": 2, "out": 2}})
		want := []string{"localhost:9192", "localhost:9092"}
		for i, addr := range []string{"localhost:9193", "localhost:9194"} {
			node, err := c.AddNode()
			if err != nil || node != int32(2+i) {
				t.Fatalf("node %d, %v", node, err)
			}
			want = append(want, addr)
		}
		if got := c.Seeds(); !slices.Equal(got, want) {
			t.Fatalf("seeds %v, want %v", got, want)
		}
		if err := c.MoveLeader("out", 0, 3); err != nil {
			t.Fatal(err)
		}
		if err := c.MoveLeader("out", 1, 3); err != nil {
			t.Fatal(err)
		}
		p := producer(t, c, kgo.Dialer(network.DialContext))
		for _, value := range []string{"a", "b"} {
			write(ctx, t, p, value)
			if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
			if err := c.RestartNode(3); err != nil {
				t.Fatal(err)
			}
		}
		wantSettled(t, c, "out")
	})
}

// A join that cannot be is told, and leaves all as it was.
func TestJoinFails(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	var network kfake.VirtualNetwork
	c := start(t, Config{Ports: []int{9092}, Listen: network.Listen})
	taken, err := network.Listen("tcp", "localhost:9093")
	if err != nil {
		t.Fatal(err)
	}
	if node, err := c.AddNode(); err == nil {
		t.Fatalf("node %d joined at a port that is taken", node)
	}
	if got := c.Seeds(); len(got) != 1 {
		t.Fatalf("seeds %v", got)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if node, err := c.AddNode(); err != nil || node != 1 {
		t.Fatalf("node %d, %v", node, err)
	}
	conn, err := network.DialContext(ctx, "tcp", c.Seeds()[1])
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// Restarts of one node at the same time leave it running.
func TestRestartsAtOnce(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	c := start(t, Config{Brokers: 1})
	for range 20 {
		errs := make(chan error)
		for range 3 {
			go func() { errs <- c.RestartNode(0) }()
		}
		for range 3 {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := producer(t, c).Ping(ctx); err != nil {
		t.Error(err)
	}
}
