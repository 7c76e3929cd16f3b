package kafka

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// processes is a cluster of Java processes.
type processes struct {
	runtime Runtime
	config  Config
	archive string // of classes; see archive.go
	nodes   []*node
}

type node struct {
	id               int
	port, controller int
	dir              string
	flags            []string // for Java, of this node alone

	mu    sync.Mutex
	proc  *process // nil while it is down
	clean bool     // the last end was an orderly one
}

type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how; read after done
}

// Start starts n brokers as processes, waits until all answer, and keeps their
// files in dir.
func Start(ctx context.Context, dir string, n int, settings ...Setting) (*Cluster, error) {
	run, err := Installed(ctx, Version())
	if err != nil {
		return nil, err
	}
	ps := &processes{runtime: run, config: Configure(n, settings...)}
	if ps.config.quick {
		ps.archive = archiveOf(run)
	}
	ports, err := FreePorts(2 * n)
	if err != nil {
		return nil, err
	}
	for i := range n {
		ps.nodes = append(ps.nodes, &node{id: i + 1, port: ports[2*i], controller: ports[2*i+1], dir: filepath.Join(dir, fmt.Sprint("broker-", i+1))})
	}
	if err := ps.format(ctx); err != nil {
		return nil, err
	}
	ps.prepareArchive()
	c := &Cluster{Nodes: ps, Kind: Process, Version: Version(), Brokers: n}
	if err := each(ps.nodes, func(_ int, b *node) error { return ps.launch(b) }); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if err := c.Ready(ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, c.Logs())
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (ps *processes) Seeds() []string {
	var seeds []string
	for _, b := range ps.nodes {
		seeds = append(seeds, fmt.Sprintf("127.0.0.1:%d", b.port))
	}
	return seeds
}

func (ps *processes) node(id int32) (*node, error) {
	if id < 1 || int(id) > len(ps.nodes) {
		return nil, fmt.Errorf("no broker %d", id)
	}
	return ps.nodes[id-1], nil
}

func (ps *processes) Kill(id int32) error {
	b, err := ps.node(id)
	if err != nil {
		return err
	}
	b.end(syscall.SIGKILL)
	return nil
}

func (ps *processes) Restart(id int32) error {
	b, err := ps.node(id)
	if err != nil {
		return err
	}
	return ps.launch(b)
}

func (ps *processes) Pause(id int32) error  { return ps.signal(id, syscall.SIGSTOP) }
func (ps *processes) Resume(id int32) error { return ps.signal(id, syscall.SIGCONT) }

func (ps *processes) signal(id int32, sig syscall.Signal) error {
	b, err := ps.node(id)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc == nil {
		return fmt.Errorf("broker %d does not run", id)
	}
	return b.proc.cmd.Process.Signal(sig)
}

func (ps *processes) Process(id int32) int {
	b, err := ps.node(id)
	if err != nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc == nil {
		return 0
	}
	return b.proc.cmd.Process.Pid
}

func (ps *processes) Ended() error {
	return each(ps.nodes, func(_ int, b *node) error {
		b.mu.Lock()
		p := b.proc
		b.mu.Unlock()
		if p == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("broker %d ended by itself: %w", b.id, p.err)
		default:
			return nil
		}
	})
}

// Stop ends all brokers at the same time: one by one, the last would wait for
// the quorum it no longer has.
func (ps *processes) Stop() error {
	var wg sync.WaitGroup
	for _, b := range ps.nodes {
		wg.Go(func() { b.end(syscall.SIGTERM) })
	}
	wg.Wait()
	return ps.keepArchive()
}

func (ps *processes) Logs() string {
	var out strings.Builder
	for _, b := range ps.nodes {
		text, err := os.ReadFile(filepath.Join(b.dir, "log"))
		if err != nil {
			fmt.Fprintf(&out, "broker %d has no log: %v\n", b.id, err)
			continue
		}
		fmt.Fprintf(&out, "--- broker %d\n%s\n", b.id, tail(text))
	}
	return out.String()
}

func (ps *processes) Said(text string) (lines int, err error) {
	for _, b := range ps.nodes {
		n, err := linesWith(filepath.Join(b.dir, "log"), text)
		if err != nil {
			return 0, fmt.Errorf("broker %d's log: %w", b.id, err)
		}
		lines += n
	}
	return lines, nil
}

func linesWith(name, text string) (n int, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return CountLines(f, text)
}

// CountLines is how many lines have that text.
func CountLines(r io.Reader, text string) (n int, err error) {
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadString('\n')
		if strings.Contains(line, text) {
			n++
		}
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

// tail is the end of a log, as much as a failed test should print.
func tail(log []byte) []byte { return log[max(0, len(log)-6000):] }

// javaFlags are for every broker: their logs have the time and not all settings,
// and none lives on with half its threads.
var javaFlags = []string{
	"-XX:+ExitOnOutOfMemoryError",
	"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
	"-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
}

// java is the command that runs one of Kafka's classes in dir, with flags of its
// own.
func (ps *processes) java(ctx context.Context, dir string, flags []string, args ...string) *exec.Cmd {
	all := slices.Concat(ps.config.JVM, javaFlags, flags)
	if ps.archive != "" {
		all = append(all, "-XX:SharedArchiveFile="+ps.archive)
	}
	cmd := exec.CommandContext(ctx, ps.runtime.Java, slices.Concat(all, []string{"-cp", ps.runtime.classpath()}, args)...)
	cmd.Dir = dir
	return cmd
}

func (ps *processes) launch(b *node) error {
	log, err := os.OpenFile(filepath.Join(b.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	cmd := ps.java(context.Background(), b.dir, b.flags, "kafka.Kafka", "server.properties")
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, procAttr()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc != nil {
		return fmt.Errorf("broker %d runs already", b.id)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		if p.err = cmd.Wait(); p.err == nil {
			p.err = errors.New("exit status 0")
		}
	}()
	b.proc = p
	return nil
}

// end signals the process and waits; one that does not end in time is killed.
func (b *node) end(sig syscall.Signal) {
	b.mu.Lock()
	p := b.proc
	b.proc = nil
	b.mu.Unlock()
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig)             // fails only for one that has ended
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // one that is paused would never see it
	clean := sig == syscall.SIGTERM
	select {
	case <-p.done: // its exit status says no more than the signal
	case <-time.After(15 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
		clean = false
	}
	b.mu.Lock()
	b.clean = clean
	b.mu.Unlock()
}

// format gives every broker its folder. One is formatted; the others have what
// it has under names of their own, since each start of Java takes its time.
func (ps *processes) format(ctx context.Context) error {
	for _, b := range ps.nodes {
		if err := os.MkdirAll(b.dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(b.dir, "server.properties"), ps.properties(b), 0o644); err != nil {
			return err
		}
	}
	first := ps.nodes[0]
	cmd := ps.java(ctx, first.dir, nil, "kafka.tools.StorageTool", "format", "-t", ClusterID, "-c", "server.properties")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format broker %d: %w\n%s", first.id, err, out)
	}
	for _, b := range ps.nodes[1:] {
		if err := copyFormat(filepath.Join(b.dir, dataDir), filepath.Join(first.dir, dataDir), b.id); err != nil {
			return fmt.Errorf("format broker %d: %w", b.id, err)
		}
	}
	return nil
}

const dataDir = "data"

func (ps *processes) properties(b *node) []byte {
	var voters []string
	for _, n := range ps.nodes {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", n.id, n.controller))
	}
	var p strings.Builder
	for _, s := range slices.Concat([]Line{
		{"node.id", fmt.Sprint(b.id)},
		{"controller.quorum.voters", strings.Join(voters, ",")},
		{"listeners", fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", b.port, b.controller)},
		{"advertised.listeners", fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", b.port)},
		{"listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"},
		{"log.dirs", dataDir},
	}, ps.config.Lines) {
		fmt.Fprintf(&p, "%s=%s\n", s.Key, s.Value)
	}
	return []byte(p.String())
}
