package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/broker/front"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Intercept sees every request of every client before it is handled and says
// what becomes of it. It is called from the connections' goroutines.
type Intercept func(Request) Action

// Request is what an Intercept sees.
type Request struct {
	Node         int32
	Conn         uint64
	Key, Version int16
	Nth          int // of this key on the cluster, from 1
	ClientID     string

	q       frame.Request
	staging wire.Profile
}

// Staging tells whether the request is TxnShareAcknowledge, whatever the key is.
func (r Request) Staging() bool { return r.staging != wire.None && r.Key == r.staging.Key() }

// Message decodes the request; nil where it cannot be.
func (r Request) Message() kmsg.Request {
	m, err := r.q.Message(r.staging)
	if err != nil {
		return nil
	}
	return m
}

// Exact tells, as an error, where the request is not byte for byte what its key
// and version say: what it decodes to must encode to the same, with nothing left.
func (r Request) Exact() error {
	m, err := r.q.Message(r.staging)
	if err != nil {
		return err
	}
	if again := m.AppendTo(nil); !bytes.Equal(again, r.q.Body) {
		return fmt.Errorf("key %d version %d: %d bytes came, of which its fields are %d", r.Key, r.Version, len(r.q.Body), len(again))
	}
	return nil
}

// Action is what becomes of a request; the zero Action lets it go on. In order:
// Before, Delay and Wait, what is done with it, Then, Late, the answer.
type Action struct {
	Before      func()              // run when it has arrived, before anything is done with it
	Delay       time.Duration       // handle it only after so long
	Wait        <-chan struct{}     // handle it only when this is closed
	LoseRequest bool                // cut the connection, unhandled
	LoseAnswer  bool                // handle it, then cut the connection unanswered
	Disconnect  bool                // handle it, answer, then cut the connection
	Twice       bool                // handle it twice, one after the other; the client gets the first answer
	Answer      kmsg.Response       // answer this, unhandled
	Instead     kmsg.Response       // handle it, and answer this
	After       func(kmsg.Response) // sees, and may change, the answer; not of what kfake answers
	Then        func()              // run when it was handled, before it is answered
	Late        time.Duration       // answer it only so long after it was handled
	Truncate    bool                // answer the first half, in a frame of that length
}

// SetIntercept replaces the Intercept; nil for none.
func (c *Cluster) SetIntercept(fn Intercept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.intercept = fn
}

// Traffic counts what came on one API key.
type Traffic struct {
	Requests int
	Bytes    int64 // whole frames
}

// Traffic of a key since the start, on all nodes, answered or not.
func (c *Cluster) Traffic(key int16) Traffic {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[key]
}

// note counts the request and asks the Intercept.
func (c *Cluster) note(node int32, conn uint64, q frame.Request) Action {
	c.mu.Lock()
	t := c.seen[q.Key]
	t.Requests++
	t.Bytes += int64(len(q.Raw))
	c.seen[q.Key] = t
	fn := c.intercept
	c.mu.Unlock()
	if fn == nil {
		return Action{}
	}
	return fn(Request{Node: node, Conn: conn, Key: q.Key, Version: q.Version, Nth: t.Requests, ClientID: q.ClientID, q: q, staging: c.staging(node)})
}

// errLost cuts a connection on purpose.
var errLost = errors.New("lost on purpose")

// Serve implements front.Handler.
func (c *Cluster) Serve(ctx context.Context, conn *front.Conn, q frame.Request) ([]byte, error) {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	act := c.note(conn.Node, conn.ID, q)
	if err := c.deed(ctx, act.Before); err != nil {
		return nil, err
	}
	if err := act.wait(ctx); err != nil {
		return nil, err
	}
	out, err := c.fate(ctx, conn, q, act)
	if err == nil {
		err = c.durable()
	}
	if err != nil {
		return nil, err
	}
	if err := c.deed(ctx, act.Then); err != nil {
		return nil, err
	}
	if act.Late > 0 && !lapse.For(ctx, act.Late) {
		return nil, ctx.Err()
	}
	if c.cfg.UnknownTags && out != nil {
		if out, err = tagged(q, c.staging(conn.Node), out); err != nil {
			return nil, err
		}
	}
	if act.Truncate && out != nil {
		out = frame.Halve(out)
	}
	switch {
	case act.LoseRequest, act.LoseAnswer:
		return nil, errLost
	case act.Disconnect:
		return out, errLost
	}
	return out, nil
}

// fate does with the request what the Action says and gives the answer.
func (c *Cluster) fate(ctx context.Context, conn *front.Conn, q frame.Request, act Action) ([]byte, error) {
	switch {
	case act.LoseRequest:
		return nil, nil
	case act.Answer != nil:
		act.Answer.SetVersion(q.Version)
		return frame.AppendResponse(nil, q.CorrelationID, act.Answer), nil
	}
	if resp, parted := c.parted(conn.Node, q); parted {
		return frame.AppendResponse(nil, q.CorrelationID, resp), nil
	}
	out, err := c.handle(ctx, conn, q, act)
	if err == nil && act.Twice {
		out = slices.Clone(out) // what kfake answered is valid until its next answer
		_, err = c.handle(ctx, conn, q, Action{})
	}
	if err == nil && act.Instead != nil {
		act.Instead.SetVersion(q.Version)
		out = frame.AppendResponse(nil, q.CorrelationID, act.Instead)
	}
	return out, err
}

// deed runs a function of an Action in a goroutine of its own: one that stops
// this node waits for this connection to end, which ends the wait here. Close
// waits for it.
func (c *Cluster) deed(ctx context.Context, fn func()) error {
	if fn == nil {
		return nil
	}
	done := make(chan struct{})
	c.deeds.Go(func() { defer close(done); fn() })
	select {
	case <-done:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a Action) wait(ctx context.Context) error {
	if a.Delay > 0 && !lapse.For(ctx, a.Delay) {
		return ctx.Err()
	}
	if a.Wait == nil {
		return nil
	}
	select {
	case <-a.Wait:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
