package endurance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/rig"
)

// life is one life of some members, from start to end: in the test's process, or
// in one of its own.
type life struct {
	name   string
	logs   []string
	killed bool

	// In the test's process.
	cancel context.CancelFunc
	done   chan error

	// In a process of its own.
	process *rig.Process
}

// job makes one for n members; each life logs to files of its own.
func (w *world) job(name string, n int) job {
	w.lives++
	j := job{Seeds: w.k.Seeds(), Group: group, Topic: topic}
	for i := range n {
		j.Logs = append(j.Logs, filepath.Join(w.dir, fmt.Sprintf("%s-%d-%d.log", name, w.lives, i)))
	}
	return j
}

// inside starts a member in the test's own process.
func (w *world) inside(ctx context.Context, name string) *life {
	j := w.job(name, 1)
	j.log = slog.DiscardHandler
	ctx, cancel := context.WithCancel(ctx)
	l := &life{name: name, logs: j.Logs, cancel: cancel, done: make(chan error, 1)}
	go func() { l.done <- j.run(ctx) }()
	w.all = append(w.all, l)
	return l
}

// process starts n members in a process of their own.
func (w *world) process(t *testing.T, name string, n int, heap string) *life {
	t.Helper()
	j := w.job(name, n)
	j.Heap = heap
	text, err := json.Marshal(j)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	p, err := rig.Spawn(name, self, j.Logs[0]+".out", jobEnv+"="+string(text))
	must(t, err)
	l := &life{name: name, logs: j.Logs, process: p}
	w.all = append(w.all, l)
	return l
}

// end ends a life in good order; again it does nothing.
func (l *life) end() error {
	if l.killed {
		return nil
	}
	if l.process != nil {
		return l.process.End(time.Minute)
	}
	if l.done == nil {
		return nil
	}
	l.cancel()
	err := <-l.done
	l.done = nil
	if err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return nil
}

// kill ends a process at once.
func (l *life) kill() error {
	err := l.process.Kill()
	l.killed = err == nil
	return err
}

// accepted is how many records the life's logs tell of so far.
func (l *life) accepted() (n int64, err error) {
	for _, name := range l.logs {
		entries, err := readLog(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // not begun yet
		} else if err != nil {
			return 0, err
		}
		for _, e := range entries {
			if e.kind == accepted {
				n += e.last - e.first + 1
			}
		}
	}
	return n, nil
}
