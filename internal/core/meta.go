package core

import (
	"errors"

	"github.com/sharetxn/sharetxn/internal/probe"
	"github.com/twmb/franz-go/pkg/kgo"
)

// metaClient is the client for metadata and proofs. One that is replaced is
// closed when the last call that uses it is done.
type metaClient struct {
	client   *kgo.Client
	users    int
	replaced bool
}

// Use runs f with the one client for metadata and proofs, made at the first
// call; once more with a new one where f finds the first behind the brokers
// (probe.ErrBehind), as after a feature was raised.
func (c *Cluster) Use(f func(*kgo.Client) error) error {
	err := c.useOnce(f)
	if errors.Is(err, probe.ErrBehind) {
		err = c.useOnce(f)
	}
	return err
}

func (c *Cluster) useOnce(f func(*kgo.Client) error) error {
	m, err := c.take()
	if err != nil {
		return err
	}
	err = f(m.client)
	c.give(m, errors.Is(err, probe.ErrBehind))
	return err
}

func (c *Cluster) take() (*metaClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if c.meta == nil {
		c.mu.Unlock()
		cl, err := c.NewClient()
		c.mu.Lock()
		switch {
		case err != nil:
			return nil, err
		case c.closed:
			cl.Close()
			return nil, ErrClosed
		case c.meta != nil: // another goroutine was first
			cl.Close()
		default:
			c.meta = &metaClient{client: cl}
		}
	}
	c.meta.users++
	return c.meta, nil
}

// give ends a use; a client that is behind is used by nobody after that.
func (c *Cluster) give(m *metaClient, behind bool) {
	c.mu.Lock()
	m.users--
	if behind && c.meta == m {
		c.meta, m.replaced = nil, true
	}
	last := m.replaced && m.users == 0
	c.mu.Unlock()
	if last {
		m.client.Close()
	}
}
