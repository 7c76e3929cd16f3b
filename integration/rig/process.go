package rig

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// ErrLate is of a process that was told to end, and had to be killed.
var ErrLate = errors.New("the process did not end in time")

// Process is a process of members. It ends in good order when its standard input
// does, and with its parent.
type Process struct {
	name, out string
	cmd       *exec.Cmd
	stdin     io.WriteCloser
	done      chan struct{} // closed when it has ended
	err       error         // how; read after done
}

// Spawn starts program with env beside the environment of this process; what it
// says goes to the file out.
func Spawn(name, program, out string, env ...string) (*Process, error) {
	said, err := os.OpenFile(out, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer said.Close() // the process has its own
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = said, said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{name: name, out: out, cmd: cmd, stdin: stdin, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// Done is closed when the process has ended, however it did.
func (p *Process) Done() <-chan struct{} { return p.done }

// Killed tells whether the process, which has ended, was killed.
func (p *Process) Killed() bool {
	<-p.done
	exit, ok := errors.AsType[*exec.ExitError](p.err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// Pause stops the process from running without ending it, and Resume lets it go
// on.
func (p *Process) Pause() error  { return p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Tell writes a line to the process's standard input. It may have ended, and then
// nobody reads it.
func (p *Process) Tell(line string) { _, _ = io.WriteString(p.stdin, line+"\n") }

// Kill ends the process at once, as a crash does. One that had ended in another
// way is an error.
func (p *Process) Kill() error {
	err := p.cmd.Process.Kill()
	if !p.Killed() {
		return fmt.Errorf("%s was to be killed and ended with %w", p.name, errors.Join(p.err, err))
	}
	return nil
}

// End ends the process in good order, and kills one that takes longer than that.
// An error of how it ended has the last that it said.
func (p *Process) End(within time.Duration) error {
	_ = p.stdin.Close() // fails for one that has ended
	limit := time.AfterFunc(within, func() { _ = p.cmd.Process.Kill() })
	<-p.done
	switch {
	case !limit.Stop():
		return fmt.Errorf("%s: %w: not within %v\n%s", p.name, ErrLate, within, p.said())
	case p.err != nil:
		return fmt.Errorf("%s: %w\n%s", p.name, p.err, p.said())
	}
	return nil
}

// ExitCode of a process that has ended by itself; -1 for one that was killed.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// said is the end of what the process wrote, as much as a failed test should
// print.
func (p *Process) said() []byte {
	text, _ := os.ReadFile(p.out) // it is gone with the test's folder, if at all
	return text[max(0, len(text)-4000):]
}
