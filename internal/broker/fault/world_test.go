package fault

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// world is a cluster with a plan, and a client that repeats nothing by itself.
type world struct {
	*broker.Cluster
	t       *testing.T
	profile wire.Profile
	cl      *kgo.Client
	opts    []kgo.Opt // of clients
}

func startWorld(ctx context.Context, t *testing.T, plan *Plan, cfg broker.Config, opts ...kgo.Opt) *world {
	t.Helper()
	cfg.Intercept = plan.Intercept()
	c, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	w := &world{Cluster: c, t: t, profile: cmp.Or(cfg.Profile, wire.Draft95), opts: opts}
	w.cl = w.client(ctx)
	return w
}

func (w *world) client(ctx context.Context, opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(w.profile.Key(), 0)
	cl, err := kgo.NewClient(slices.Concat([]kgo.Opt{
		kgo.SeedBrokers(w.Seeds()...), kgo.DisableClientMetrics(), kgo.WithContext(ctx), kgo.MaxVersions(versions),
	}, w.opts, opts)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(cl.Close)
	return cl
}

// try asks a node once.
func (w *world) try(ctx context.Context, node int, req kmsg.Request) (kmsg.Response, error) {
	return w.cl.Broker(node).Request(ctx, req)
}

// routed is who answers a request as kgo knows it.
const routed = -1

// request asks a node, again if the connection was just cut.
func (w *world) request(ctx context.Context, node int, req kmsg.Request) kmsg.Response {
	w.t.Helper()
	ask := w.cl.Request
	if node != routed {
		ask = w.cl.Broker(node).RetriableRequest
	}
	resp, err := ask(ctx, req)
	if errors.Is(err, io.EOF) {
		resp, err = ask(ctx, req)
	}
	if err != nil {
		w.t.Fatalf("key %d: %v", req.Key(), err)
	}
	return resp
}

// rawConn is a connection to node 0 on which versions are not negotiated.
type rawConn struct {
	t *testing.T
	net.Conn
	sent int32
}

func (w *world) raw(ctx context.Context, t *testing.T) *rawConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", w.Seeds()[0])
	if err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	t.Cleanup(func() { stop(); _ = conn.Close() })
	return &rawConn{t: t, Conn: conn}
}

func (c *rawConn) ask(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	c.sent++
	if _, err := c.Write(frame.AppendRequest(nil, c.sent, "raw", req)); err != nil {
		c.t.Fatal(err)
	}
	raw, err := frame.Read(c, nil)
	if err != nil {
		c.t.Fatalf("key %d version %d: no answer: %v", req.Key(), req.GetVersion(), err)
	}
	resp, err := frame.ReadResponse(raw, req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// transaction is the state of transactional id x; zero if there is none.
func (w *world) transaction() txn.View {
	for _, v := range w.Transactions() {
		if v.ID == "x" {
			return v
		}
	}
	return txn.View{ProducerEpoch: -1}
}
