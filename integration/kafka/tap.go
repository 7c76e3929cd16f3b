package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
)

// Fate is what a Tap does with a request.
type Fate uint8

const (
	// Pass lets the request and its answer through.
	Pass Fate = iota
	// LoseRequest closes the connection before the broker sees the request.
	LoseRequest
	// LoseAnswer lets the broker carry the request out, and closes the
	// connection when its answer has come.
	LoseAnswer
)

// Tap lies between a client and its brokers: give its Dial to kgo.Dialer. It
// counts the API keys of all requests and can lose some. Safe for concurrent
// use.
type Tap struct {
	mu     sync.Mutex
	decide func(key int16) Fate
	look   func(key, version int16, answer []byte)
	seen   map[int16]int
	lost   map[Fate]int
	lines  map[*line]struct{}
	wg     sync.WaitGroup
}

// NewTap gives a tap that passes everything.
func NewTap() *Tap {
	return &Tap{seen: make(map[int16]int), lost: make(map[Fate]int), lines: make(map[*line]struct{})}
}

// Decide sets what happens to requests from now on; nil passes them all.
func (t *Tap) Decide(fn func(key int16) Fate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decide = fn
}

// Look lets fn see each answer before its client does: the API key and version of
// the request, and what comes after the correlation id. fn is called from each
// connection's goroutine and must not keep the bytes; nil ends it.
func (t *Tap) Look(fn func(key, version int16, answer []byte)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look = fn
}

// Seen is the number of requests with that API key.
func (t *Tap) Seen(key int16) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen[key]
}

// Lost is the number of requests that had that fate in fact.
func (t *Tap) Lost(f Fate) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost[f]
}

// Close ends all connections and waits for them.
func (t *Tap) Close() {
	for _, l := range t.open() {
		l.close()
	}
	t.wg.Wait()
}

// Sever ends each connection on which a request with that API key went, at the
// broker's end only: the broker is told, and the client waits for answers that
// never come, as behind a firewall that has forgotten the connection. It tells how
// many there were.
func (t *Tap) Sever(key int16) (n int) {
	for _, l := range t.open() {
		if l.sever(key) {
			n++
		}
	}
	return n
}

func (t *Tap) open() []*line {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.lines))
}

// Dial connects to addr through the tap.
func (t *Tap) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	broker, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	client, inner := net.Pipe()
	l := &line{tap: t, client: inner, broker: broker, asked: make(map[uint32]asked), carried: make(map[int16]bool)}
	t.mu.Lock()
	t.lines[l] = struct{}{}
	t.mu.Unlock()
	t.wg.Add(2)
	go l.run(l.requests)
	go l.run(l.answers)
	return client, nil
}

// line is one connection.
type line struct {
	tap            *Tap
	client, broker net.Conn

	mu      sync.Mutex
	asked   map[uint32]asked // by correlation id, until answered
	carried map[int16]bool   // API keys of requests
	severed bool
}

// asked is a request under way.
type asked struct {
	key, version int16
	doomed       bool // its answer is to be lost
}

// run copies one direction; when it ends both do, unless the line was severed:
// then the client's end stays.
func (l *line) run(direction func() error) {
	defer l.tap.wg.Done()
	err := direction() // the end of a connection is not ours to report
	if l.isSevered() && !errors.Is(err, errClient) {
		return
	}
	l.close()
	l.tap.mu.Lock()
	delete(l.tap.lines, l)
	l.tap.mu.Unlock()
}

func (l *line) close() {
	_ = l.client.Close()
	_ = l.broker.Close()
}

func (l *line) sever(key int16) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.severed || !l.carried[key] {
		return false
	}
	l.severed = true
	_ = l.broker.Close()
	return true
}

func (l *line) isSevered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.severed
}

// errClient is of the end of the client's connection.
var errClient = errors.New("the client is gone")

var errCut = errors.New("connection cut by the tap")

func (l *line) requests() error {
	for {
		frame, err := readFrame(l.client, 8)
		if err != nil {
			return errors.Join(errClient, err)
		}
		// size, API key, version, correlation id
		key, version, id := int16(binary.BigEndian.Uint16(frame[4:])), int16(binary.BigEndian.Uint16(frame[6:])), binary.BigEndian.Uint32(frame[8:])
		fate := l.tap.fate(key)
		if fate == LoseRequest {
			l.tap.count(LoseRequest)
			return errCut
		}
		l.mu.Lock()
		l.asked[id] = asked{key, version, fate == LoseAnswer}
		l.carried[key] = true
		l.mu.Unlock()
		if _, err := l.broker.Write(frame); err != nil && !l.isSevered() {
			return err
		}
	}
}

func (l *line) answers() error {
	for {
		frame, err := readFrame(l.broker, 4)
		if err != nil {
			return err
		}
		id := binary.BigEndian.Uint32(frame[4:])
		l.mu.Lock()
		was := l.asked[id]
		delete(l.asked, id)
		l.mu.Unlock()
		if was.doomed {
			l.tap.count(LoseAnswer)
			return errCut
		}
		l.tap.show(was, frame[8:])
		if _, err := l.client.Write(frame); err != nil {
			return err
		}
	}
}

func (t *Tap) fate(key int16) Fate {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen[key]++
	if t.decide == nil {
		return Pass
	}
	return t.decide(key)
}

func (t *Tap) show(was asked, answer []byte) {
	t.mu.Lock()
	look := t.look
	t.mu.Unlock()
	if look != nil {
		look(was.key, was.version, answer)
	}
}

func (t *Tap) count(f Fate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost[f]++
}

// readFrame reads a frame of at least least bytes, its size included.
func readFrame(r io.Reader, least uint32) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < least || n > 100<<20 {
		return nil, errors.New("not a Kafka frame")
	}
	frame := append(size[:], make([]byte, n)...)
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}
