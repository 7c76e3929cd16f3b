package shareconsumer

import (
	"context"
	"errors"
	"time"

	"github.com/sharetxn/sharetxn"
)

var errConsumerClosed = errors.New("the consumer was closed")

// Close gives back what is held, leaves the group, and is bounded by
// CloseTimeout. Acknowledgements of CommitAsync and releases still go out;
// records without a verdict, and in Implicit mode those that no later Poll has
// accepted, are released by the brokers. What a transaction has staged stays
// with the transaction; one that holds a batch and has not staged it will
// abort. Idempotent, safe to call from any goroutine but those that run hooks,
// OnAcknowledged and OnAssigned, whose calls it waits for beyond the bound; the
// error says that the bound was reached, the brokers then release by their own
// timers.
func (c *Consumer) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.ended
		return nil
	}
	c.closed = true
	c.giveBack(errConsumerClosed, func(*lease) bool { return true })
	c.wakeSessions()
	c.announce()
	started := c.started
	c.mu.Unlock()
	defer close(c.ended)
	defer c.news.tell()
	var err error
	if started {
		c.endLive()
		deadline := time.NewTimer(c.cfg.closeTimeout)
		defer deadline.Stop()
		select {
		case <-c.left:
		case <-deadline.C:
			err = &sharetxn.Error{Op: "Close", Class: sharetxn.ClassAbortable, Group: c.group, Err: context.DeadlineExceeded}
		}
		c.unlist()
		c.cancel()
	}
	c.client.Close()
	c.wg.Wait()
	return err
}

// depart waits for the sessions to close, then leaves the group. A broker that
// does not answer takes at most part of the time, so that the group learns of
// it at once; what that broker holds it releases when the connection ends.
func (c *Consumer) depart(ctx context.Context, k *coordinator) {
	c.mu.Lock()
	sessions := make([]*session, 0, len(c.sessions))
	for _, s := range c.sessions {
		sessions = append(sessions, s)
	}
	joined := c.joined
	c.mu.Unlock()
	patience, cancel := context.WithTimeout(ctx, c.cfg.closeTimeout*2/3)
	defer cancel()
	for _, s := range sessions {
		select {
		case <-s.ended:
		case <-patience.Done():
		}
	}
	if !joined || ctx.Err() != nil {
		return
	}
	switch err := c.leave(ctx, k); {
	case err == nil:
		c.tellMember(sharetxn.Member{Event: sharetxn.MemberLeft})
	case ctx.Err() == nil:
		c.core.Logger().Warn("sharetxn: leaving the group failed; it will notice by itself", "group", c.group, "err", err)
	}
}
