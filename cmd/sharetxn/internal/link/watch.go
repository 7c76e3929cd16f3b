package link

import (
	"encoding/binary"
	"net"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
)

// Fate is what becomes of a request; the zero Fate lets it go on.
type Fate struct {
	Before      func() // run while the request is held back
	LoseRequest bool   // the connection ends instead
	LoseAnswer  bool   // the connection ends when the answer has come
	// Then sees the frame that answers the request, nil if the connection ended
	// before. It is called once, unless the request is lost.
	Then func(answer []byte)
}

// send lets whole requests go, one by one.
func (c *conn) send(b []byte) (int, error) {
	c.unsent = append(c.unsent, b...)
	for {
		raw, ok := whole(c.unsent)
		if !ok {
			return len(b), nil
		}
		if err := c.request(raw); err != nil {
			return 0, err
		}
		c.unsent = append(c.unsent[:0], c.unsent[len(raw):]...)
	}
}

// whole is the frame that b begins with.
func whole(b []byte) (raw []byte, ok bool) {
	if len(b) < 4 {
		return nil, false
	}
	n := 4 + int64(binary.BigEndian.Uint32(b))
	if int64(len(b)) < n {
		return nil, false
	}
	return b[:n], true
}

// request does with one request what Watch says. What is no request goes on: the
// broker has something to say of it.
func (c *conn) request(raw []byte) error {
	var fate Fate
	q, err := frame.Parse(raw)
	if err == nil {
		fate = c.link.Watch(q)
	}
	if fate.Before != nil {
		fate.Before()
	}
	if fate.LoseRequest {
		_ = c.Close()
		return net.ErrClosed
	}
	if !c.await(q.CorrelationID, fate) || c.link.pass(c.closed) != nil { // Before may have held the link
		return net.ErrClosed
	}
	_, err = c.Conn.Write(raw)
	return err
}

// await keeps what is to become of an answer; false if there will be none.
func (c *conn) await(id int32, fate Fate) bool {
	if !fate.LoseAnswer && fate.Then == nil {
		return true
	}
	c.mu.Lock()
	open := c.awaited != nil
	if open {
		c.awaited[id] = fate
	}
	c.mu.Unlock()
	if !open && fate.Then != nil {
		fate.Then(nil)
	}
	return open
}

// receive reads answer by answer.
func (c *conn) receive(b []byte) (int, error) {
	if len(c.unread) == 0 {
		raw, err := frame.Read(c.Conn, c.answer)
		if err != nil {
			return 0, err
		}
		c.answer, c.unread = raw, raw
		if c.lost(raw) {
			_ = c.Close()
			return 0, net.ErrClosed
		}
	}
	n := copy(b, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

// lost shows an answer to whoever waits for it and tells whether it ends here.
func (c *conn) lost(raw []byte) bool {
	if len(raw) < 8 {
		return false
	}
	id := int32(binary.BigEndian.Uint32(raw[4:]))
	c.mu.Lock()
	fate := c.awaited[id]
	delete(c.awaited, id)
	c.mu.Unlock()
	if fate.Then != nil {
		fate.Then(raw)
	}
	return fate.LoseAnswer
}

// forsake tells those who wait that no answer will come.
func (c *conn) forsake() {
	c.mu.Lock()
	awaited := c.awaited
	c.awaited = nil
	c.mu.Unlock()
	for _, fate := range awaited {
		if fate.Then != nil {
			fate.Then(nil)
		}
	}
}
