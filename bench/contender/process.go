package contender

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// Process is a contender that waits for jobs. Not safe for concurrent use.
type Process struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte // closed when its output ends
	ended chan struct{}
	says  *tail
}

// StartGo starts this program again as a contender in Go; see Serving. The CPU
// profile is written to a file when it is stopped; empty: none.
func StartGo(name, profile string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envName+"="+name, envProfile+"="+profile)
	return start(name, cmd)
}

//go:embed java/Contender.java
var source []byte

// StartJava starts Kafka's own client: java is the program, jars a folder with
// the client's, and dir a folder for the source.
func StartJava(java, jars, dir string) (*Process, error) {
	file := filepath.Join(dir, "Contender.java")
	if err := os.WriteFile(file, source, 0o644); err != nil {
		return nil, err
	}
	return start("Java", exec.Command(java, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-Xmx1g",
		"-cp", filepath.Join(jars, "*"), file))
}

func start(name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{name: name, cmd: cmd, lines: make(chan []byte), ended: make(chan struct{}), says: &tail{}}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, cmd.Stderr = in, p.says
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			p.lines <- append([]byte(nil), lines.Bytes()...)
		}
		close(p.lines)
		_ = cmd.Wait() // how it ended says less than what it said
	}()
	return p, nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Do gives the contender a job and waits for its report; first is called when
// the first records have come. A contender whose job fails is of no more use.
func (p *Process) Do(ctx context.Context, j Job, first func()) (Report, error) {
	line, err := json.Marshal(j)
	if err != nil {
		return Report{}, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return Report{}, p.failed(err)
	}
	for {
		var line []byte
		select {
		case <-ctx.Done():
			return Report{}, p.failed(context.Cause(ctx))
		case line = <-p.lines:
		}
		if line == nil {
			return Report{}, p.failed(io.ErrUnexpectedEOF)
		}
		var m message
		switch err := json.Unmarshal(line, &m); {
		case err != nil:
			return Report{}, p.failed(fmt.Errorf("%w: %s", err, line))
		case m.Error != "":
			return Report{}, p.failed(errors.New(m.Error))
		case m.First:
			first()
		case m.Report != nil:
			return *m.Report, nil
		}
	}
}

func (p *Process) failed(err error) error {
	if text := p.says.String(); text != "" {
		return fmt.Errorf("%s: %w; it said:\n%s", p.name, err, text)
	}
	return fmt.Errorf("%s: %w", p.name, err)
}

// Stop lets the process end, kills it if it does not within ten seconds, and
// waits. No-op for one that has ended.
func (p *Process) Stop() {
	_ = p.in.Close()
	stuck := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer stuck.Stop()
	for range p.lines { // so that its end is seen; nobody asks for them any more
	}
	<-p.ended
}

// tail keeps the end of what is written to it. Safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const limit = 2000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-limit):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}
