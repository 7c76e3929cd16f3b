package broker

import (
	"context"
	"errors"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/broker/front"
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

	q       frame.Request
	staging wire.Profile
}

// Message decodes the request; nil where it cannot be.
func (r Request) Message() kmsg.Request {
	m, err := r.q.Message(r.staging)
	if err != nil {
		return nil
	}
	return m
}

// Action is what becomes of a request; the zero Action lets it go on.
type Action struct {
	Wait        <-chan struct{}     // handle it only when this is closed
	LoseRequest bool                // cut the connection, unhandled
	LoseAnswer  bool                // handle it, then cut the connection unanswered
	Answer      kmsg.Response       // answer this, unhandled
	After       func(kmsg.Response) // sees, and may change, the answer; not of what kfake answers
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
	return fn(Request{Node: node, Conn: conn, Key: q.Key, Version: q.Version, Nth: t.Requests, q: q, staging: c.staging(node)})
}

func (a Action) wait(ctx context.Context) error {
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

// errLost cuts a connection on purpose.
var errLost = errors.New("lost on purpose")

// Serve implements front.Handler.
func (c *Cluster) Serve(ctx context.Context, conn *front.Conn, q frame.Request) ([]byte, error) {
	act := c.note(conn.Node, conn.ID, q)
	if err := act.wait(ctx); err != nil {
		return nil, err
	}
	if act.LoseRequest {
		return nil, errLost
	}
	if act.Answer != nil {
		act.Answer.SetVersion(q.Version)
		return frame.AppendResponse(nil, q.CorrelationID, act.Answer), nil
	}
	out, err := c.handle(ctx, conn, q, act)
	if err == nil && act.LoseAnswer {
		err = errLost
	}
	return out, err
}
