package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cluster is a number of brokers that are controllers too.
type Cluster struct {
	java, jars, dir string
	jvm             []string // options of the brokers' Java
	nodes           []*node
	set             []setting
}

// Setting is a broker setting that Start is given in place of its own.
type Setting func(*Cluster)

type setting struct{ key, value string }

// Set gives all brokers a line of server.properties that wins over what Start
// would have written.
func Set(key string, value any) Setting {
	return func(c *Cluster) { c.set = append(c.set, setting{key, fmt.Sprint(value)}) }
}

// quickStart lets a broker start fast and stay small; it runs slower for that.
var quickStart = []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"}

// JVM gives the brokers' Java these options in place of those for a quick start:
// a broker that is measured must be allowed to get warm.
func JVM(options ...string) Setting {
	return func(c *Cluster) { c.jvm = options }
}

type node struct {
	id               int
	port, controller int
	dir              string

	mu  sync.Mutex
	cmd *exec.Cmd
	end chan error // the process's end; buffered
}

// Start starts n brokers, waits until all answer, and keeps their files in dir.
func Start(ctx context.Context, dir string, n int, settings ...Setting) (*Cluster, error) {
	java, jars, err := Install(ctx, Version())
	if err != nil {
		return nil, err
	}
	c := &Cluster{java: java, jars: jars, dir: dir, jvm: quickStart}
	for _, s := range settings {
		s(c)
	}
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, err
	}
	for i := range n {
		c.nodes = append(c.nodes, &node{id: i + 1, port: ports[2*i], controller: ports[2*i+1], dir: filepath.Join(dir, fmt.Sprint("broker-", i+1))})
	}
	if err := c.each(func(b *node) error {
		if err := c.format(ctx, b); err != nil {
			return err
		}
		return c.launch(b)
	}); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if err := c.Ready(ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, c.Logs())
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Seeds are the brokers' addresses.
func (c *Cluster) Seeds() []string {
	var seeds []string
	for _, b := range c.nodes {
		seeds = append(seeds, fmt.Sprintf("127.0.0.1:%d", b.port))
	}
	return seeds
}

// Kill ends a broker at once, as a crash does.
func (c *Cluster) Kill(id int32) error { return c.nodes[id-1].stop(syscall.SIGKILL, 10*time.Second) }

// Restart starts a broker that was killed; Ready tells when it is back.
func (c *Cluster) Restart(id int32) error { return c.launch(c.nodes[id-1]) }

// Process is the id of a broker's process; 0 if it does not run.
func (c *Cluster) Process(id int32) int {
	b := c.nodes[id-1]
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		return 0
	}
	return b.cmd.Process.Pid
}

// Stop ends all brokers at the same time: one by one, the last would wait for
// the quorum it no longer has.
func (c *Cluster) Stop() error {
	return c.each(func(b *node) error { return b.stop(syscall.SIGTERM, 10*time.Second) })
}

// Ready waits until each broker knows of all of them.
func (c *Cluster) Ready(ctx context.Context) error {
	return c.each(func(b *node) error {
		cl, err := kgo.NewClient(kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", b.port)))
		if err != nil {
			return err
		}
		defer cl.Close()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			known, err := brokersKnown(ctx, cl)
			if err == nil && known == len(c.nodes) {
				return nil
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("broker %d is not ready, knows %d brokers: %w (%w)", b.id, known, err, ctx.Err())
			}
		}
	})
}

func brokersKnown(ctx context.Context, cl *kgo.Client) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return 0, err
	}
	return len(resp.(*kmsg.MetadataResponse).Brokers), nil
}

// Logs is the end of each broker's log.
func (c *Cluster) Logs() string {
	var out strings.Builder
	for _, b := range c.nodes {
		text, err := os.ReadFile(filepath.Join(b.dir, "log"))
		if err != nil {
			fmt.Fprintf(&out, "broker %d has no log: %v\n", b.id, err)
			continue
		}
		const limit = 6000
		fmt.Fprintf(&out, "--- broker %d\n%s\n", b.id, text[max(0, len(text)-limit):])
	}
	return out.String()
}

func (c *Cluster) each(fn func(*node) error) error {
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, b := range c.nodes {
		wg.Go(func() { errs[i] = fn(b) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *Cluster) format(ctx context.Context, b *node) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.dir, "server.properties"), []byte(c.properties(b)), 0o644); err != nil {
		return err
	}
	const clusterID = "c2hhcmV0eG4tdGVzdHMtMQ" // any 16 bytes
	cmd := exec.CommandContext(ctx, c.java, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m",
		"-cp", filepath.Join(c.jars, "*"), "kafka.tools.StorageTool", "format", "-t", clusterID, "-c", "server.properties")
	cmd.Dir = b.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format broker %d: %w\n%s", b.id, err, out)
	}
	return nil
}

func (c *Cluster) launch(b *node) error {
	log, err := os.OpenFile(filepath.Join(b.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(c.java, slices.Concat(c.jvm,
		[]string{"-XX:+ExitOnOutOfMemoryError", "-cp", filepath.Join(c.jars, "*"), "kafka.Kafka", "server.properties"})...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = b.dir, log, log, procAttr()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd != nil {
		return fmt.Errorf("broker %d runs already", b.id)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	end := make(chan error, 1)
	go func() { end <- cmd.Wait() }()
	b.cmd, b.end = cmd, end
	return nil
}

// stop signals the process and waits; one that does not end in time is killed.
func (b *node) stop(sig syscall.Signal, wait time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		return nil
	}
	_ = b.cmd.Process.Signal(sig) // fails only for one that has ended
	select {
	case <-b.end: // its exit status says no more than the signal
	case <-time.After(wait):
		_ = b.cmd.Process.Kill()
		<-b.end
	}
	b.cmd = nil
	return nil
}

// properties are the least that lets groups and transactions work on so few
// nodes, and that keeps tests short.
func (c *Cluster) properties(b *node) string {
	var voters []string
	for _, n := range c.nodes {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", n.id, n.controller))
	}
	replicas, insync := 1, 1
	if len(c.nodes) > 2 {
		replicas, insync = 3, 2
	}
	var p strings.Builder
	set := func(key string, value any) { fmt.Fprintf(&p, "%s=%v\n", key, value) }
	set("process.roles", "broker,controller")
	set("node.id", b.id)
	set("controller.quorum.voters", strings.Join(voters, ","))
	set("listeners", fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", b.port, b.controller))
	set("advertised.listeners", fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", b.port))
	set("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT")
	set("controller.listener.names", "CONTROLLER")
	set("log.dirs", "data")
	set("offsets.topic.replication.factor", replicas)
	set("default.replication.factor", replicas)
	set("min.insync.replicas", insync)
	set("transaction.state.log.replication.factor", replicas)
	set("transaction.state.log.min.isr", insync)
	set("share.coordinator.state.topic.replication.factor", replicas)
	set("share.coordinator.state.topic.min.isr", insync)
	set("offsets.topic.num.partitions", 4)
	set("transaction.state.log.num.partitions", 4)
	set("share.coordinator.state.topic.num.partitions", 4)
	set("group.initial.rebalance.delay.ms", 0)
	set("group.share.min.record.lock.duration.ms", 1000)
	set("group.share.min.heartbeat.interval.ms", 500)
	set("group.share.heartbeat.interval.ms", 500)
	set("broker.session.timeout.ms", 3000)
	set("broker.heartbeat.interval.ms", 500)
	set("transaction.abort.timed.out.transaction.cleanup.interval.ms", 1000)
	set("log.cleaner.dedupe.buffer.size", 2<<20) // else the heap must be larger
	for _, s := range c.set {                    // of two lines with one key the last counts
		set(s.key, s.value)
	}
	return p.String()
}

// freePorts are n ports that were free a moment ago.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // only after all are had, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
