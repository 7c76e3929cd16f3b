package tail

import "sync"

// signal wakes all who wait for the next time that something happens. The zero
// signal is ready; nothing is made where nobody waits.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait gives a channel that is closed at the next fire.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
