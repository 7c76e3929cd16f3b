package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A cluster that cannot start says why and leaves nothing behind, not even
// with the nodes that did start.
func TestStartFails(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	taken, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for name, tc := range map[string]struct {
		cfg Config
		in  string
	}{
		"ports":      {Config{Brokers: 3, Ports: []int{0}}, "1 ports for 3 brokers"},
		"port taken": {Config{Ports: []int{0, taken.Addr().(*net.TCPAddr).Port}}, "in use"},
		"topic":      {Config{Topics: map[string]int32{"none": 0}}, "0 partitions"},
	} {
		c, err := Start(tc.cfg)
		if err == nil {
			c.Close()
			t.Errorf("%s: started", name)
		} else if !strings.Contains(err.Error(), tc.in) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Close is bounded with clients connected and waiting, and may be called again.
func TestClose(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"in": 3, "out": 1}, GroupConfigs: earliest, HeartbeatInterval: 100 * time.Millisecond})
	p := producer(t, c)
	write(ctx, t, p, "open")
	member := client(t, c, kgo.ShareGroup("g"), kgo.ConsumeTopics("in"), kgo.FetchMaxWait(20*time.Second))
	polled := make(chan kgo.Fetches, 1)
	go func() { polled <- member.PollFetches(ctx) }()
	testkit.Eventually(ctx, t, "the member waits", func() bool { return c.Traffic(keyShareFetch).Requests > 0 })
	began := time.Now()
	c.Close()
	c.Close()
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("closed after %v", d)
	}
	member.Close()
	<-polled
}

// The public side may be TLS; kfake behind it does not know.
func TestTLS(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	srv := httptest.NewTLSServer(nil) // for its certificate
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	c := start(t, Config{Brokers: 3, TLS: &tls.Config{Certificates: srv.TLS.Certificates}, Topics: map[string]int32{"out": 3}})
	p := producer(t, c, kgo.DialTLSConfig(&tls.Config{RootCAs: roots}))
	write(ctx, t, p, "secret")
	if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	c.StopNode(0)
	if err := c.StartNode(0); err != nil {
		t.Fatal(err)
	}
	write(ctx, t, p, "again")
	if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	wantSettled(t, c, "out")
}

// On a virtual network minutes pass at once: a transaction times out after its
// minute, and a share record comes again when its lock ends, not before.
func TestVirtualTime(t *testing.T) {
	testkit.Deadline(t, 60*time.Second)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var network kfake.VirtualNetwork
		c := start(t, Config{
			Brokers: 3, Ports: []int{9092, 9093, 9094}, Listen: network.Listen, Topics: map[string]int32{"in": 1, "out": 1},
			GroupConfigs: map[string]map[string]string{"g": {"share.auto.offset.reset": "earliest", lockConfig: "45000"}},
		})
		virtual := kgo.Dialer(network.DialContext)
		p := producer(t, c, virtual, kgo.TransactionTimeout(time.Minute))
		began := time.Now()
		write(ctx, t, p, "late")
		wait := func(what string, cond func() bool) time.Duration {
			for !cond() {
				if ctx.Err() != nil {
					t.Fatalf("never came true: %s", what)
				}
				time.Sleep(100 * time.Millisecond)
			}
			return time.Since(began)
		}
		if d := wait("timed out", func() bool { return c.Transactions()[0].Partitions == nil }); d < time.Minute || d > time.Minute+time.Second {
			t.Errorf("the transaction timed out after %v", d)
		}

		feeder := client(t, c, virtual)
		if err := feeder.ProduceSync(ctx, &kgo.Record{Topic: "in", Value: []byte("a")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		holder := client(t, c, virtual, kgo.ShareGroup("g"), kgo.ConsumeTopics("in"))
		if fs := holder.PollFetches(ctx); fs.NumRecords() != 1 {
			t.Fatalf("%d records, %v", fs.NumRecords(), fs.Errors())
		}
		began = time.Now()
		delivered := func() int16 {
			_, _, count, ok := c.StateOf("g", "in", 0, 0)
			if !ok {
				t.Fatal("the record is not in the group's window")
			}
			return count
		}
		if n := delivered(); n != 1 {
			t.Fatalf("delivered %d times", n)
		}
		if d := wait("delivered again", func() bool { return delivered() == 2 }); d < 44*time.Second || d > 46*time.Second {
			t.Errorf("the lock ended after %v", d)
		}
	})
}
