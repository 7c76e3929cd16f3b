package endurance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
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
	cmd   *exec.Cmd
	stdin io.Closer
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
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
	out, err := os.OpenFile(j.Logs[0]+".out", os.O_CREATE|os.O_WRONLY, 0o644)
	must(t, err)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	stdin, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	l := &life{name: name, logs: j.Logs, cmd: cmd, stdin: stdin}
	w.all = append(w.all, l)
	return l
}

// end ends a life in good order; again it does nothing.
func (l *life) end() error {
	if l.killed {
		return nil
	}
	if l.cmd == nil {
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
	if l.cmd.ProcessState != nil {
		return nil
	}
	_ = l.stdin.Close() // fails for one that has ended
	limit := time.AfterFunc(time.Minute, func() { _ = l.cmd.Process.Kill() })
	defer limit.Stop()
	if err := l.cmd.Wait(); err != nil {
		said, _ := os.ReadFile(l.logs[0] + ".out")
		return fmt.Errorf("%s: %w\n%s", l.name, err, said[max(0, len(said)-4000):])
	}
	return nil
}

// kill ends a process at once.
func (l *life) kill() error {
	if err := l.cmd.Process.Kill(); err != nil {
		return err
	}
	err := l.cmd.Wait()
	_ = l.stdin.Close()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Exited() {
		return fmt.Errorf("%s was to be killed and ended with %w", l.name, err)
	}
	l.killed = true
	return nil
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
