package simulation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/internal/lapse"
)

var errMood = errors.New("the script wants it so")

// moods are what calls of handlers do that is not their record's doing.
type moods struct {
	mu    sync.Mutex
	fails int
	slows []time.Duration
	deaf  []time.Duration // the callers
}

func (m *moods) fail(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails += n
}

func (m *moods) slow(n int, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range n {
		m.slows = append(m.slows, d)
	}
}

func (m *moods) deafen(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deaf = append(m.deaf, d)
}

// deafens tells whether the process of a call is deaf from now on, and how long.
func (m *moods) deafens() (d time.Duration, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.deaf) == 0 {
		return 0, false
	}
	d, m.deaf = m.deaf[0], m.deaf[1:]
	return d, true
}

// calm takes back what no call has met yet.
func (m *moods) calm() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails, m.slows, m.deaf = 0, nil, nil
}

// meet is what one call meets.
func (m *moods) meet(ctx context.Context) error {
	m.mu.Lock()
	var wait time.Duration
	if len(m.slows) > 0 {
		wait, m.slows = m.slows[0], m.slows[1:]
	}
	var err error
	if m.fails > 0 {
		m.fails--
		err = errMood
	}
	m.mu.Unlock()
	if !lapse.For(ctx, wait) {
		return context.Cause(ctx)
	}
	return err
}
