package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/sharetxntest"
)

// pod is a process that runs the program.
type pod struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu     sync.Mutex
	probes string
	log    strings.Builder
}

// startPod starts a process whose handler asks at the gate. It is killed when
// the test ends, if it still runs.
func startPod(t *testing.T, k *sharetxntest.Cluster, g *gate, name string) *pod {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{ended: make(chan struct{})}
	p.cmd = exec.Command(self, "-bootstrap="+strings.Join(k.Seeds(), ","), "-health=127.0.0.1:0", "-stop-timeout=20s")
	p.cmd.Env = append(os.Environ(), gateVar+"="+g.listener.Addr().String(), "POD_NAME="+name)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.read(stderr)
		_ = p.cmd.Wait() // its status is in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // an error means that it has ended
		<-p.ended
		if t.Failed() {
			t.Logf("pod %s (%v):\n%s", name, p.cmd.ProcessState, p.said())
		}
	})
	return p
}

func (p *pod) read(stderr io.Reader) {
	for in := bufio.NewScanner(stderr); in.Scan(); {
		p.mu.Lock()
		p.log.WriteString(in.Text() + "\n")
		if _, address, ok := strings.Cut(in.Text(), "probes at "); ok {
			p.probes = address
		}
		p.mu.Unlock()
	}
}

// said is what the process has logged.
func (p *pod) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// probe asks the process as Kubernetes does; 0 if nobody answers.
func (p *pod) probe(ctx context.Context, path string) int {
	p.mu.Lock()
	address := p.probes
	p.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func (p *pod) wantReady(ctx context.Context, t *testing.T) {
	t.Helper()
	testkit.Eventually(ctx, t, "the pod is ready", func() bool { return p.probe(ctx, "/ready") == http.StatusOK })
}

// terminate sends SIGTERM and waits until the process has begun to stop.
func (p *pod) terminate(ctx context.Context, t *testing.T) {
	t.Helper()
	p.signal(t)
	testkit.Eventually(ctx, t, "the pod stops", func() bool { return p.probe(ctx, "/ready") != http.StatusOK })
}

func (p *pod) signal(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// exit waits for the end and gives the exit status.
func (p *pod) exit(ctx context.Context, t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-ctx.Done():
		t.Fatal("the pod does not end")
		return 0
	}
}
