// Package container gives stock Kafka in containers of a local engine, through
// testcontainers-go. Only tests import it; choose through package target.
package container

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	dockernet "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/network"
)

// ImageEnv names the variable with the image to run instead of the official one
// of kafka.Version; integration/image/build makes one where none can be pulled.
const ImageEnv = "SHARETXN_KAFKA_IMAGE"

// Image is the image that is run.
func Image() string { return cmp.Or(os.Getenv(ImageEnv), "apache/kafka:"+kafka.Version()) }

// Source says who chose Image.
func Source() string {
	if os.Getenv(ImageEnv) != "" {
		return "named by " + ImageEnv
	}
	return "the official image"
}

// version is what the image's tag says.
func version(image string) string {
	if _, tag, ok := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":"); ok && tag[0] >= '0' && tag[0] <= '9' {
		return tag
	}
	return kafka.Version()
}

// quiet settles testcontainers once for the process. Its reaper is one more
// image that cannot be pulled everywhere; who wants it says so. What it would
// print of the engine is no matter of the tests.
var quiet = sync.OnceFunc(func() {
	const reaper = "TESTCONTAINERS_RYUK_DISABLED"
	if os.Getenv(reaper) == "" {
		_ = os.Setenv(reaper, "true") // fails for a bad name only
	}
	tclog.SetDefault(tclog.NewNoopLogger())
})

// Available tells whether containers can be had: nil, or an error that wraps
// kafka.ErrUnavailable. An image that is not there yet is pulled.
func Available(ctx context.Context) error {
	quiet()
	engine, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return fmt.Errorf("%w: no engine: %w", kafka.ErrUnavailable, err)
	}
	defer engine.Close()
	if _, err = engine.ImageInspect(ctx, Image()); err == nil {
		return nil
	} else if !cerrdefs.IsNotFound(err) {
		return fmt.Errorf("%w: image %s: %w", kafka.ErrUnavailable, Image(), err)
	}
	pulling, err := engine.ImagePull(ctx, Image(), client.ImagePullOptions{})
	if err == nil {
		err = pulling.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: image %s is not here and cannot be pulled (integration/image/build makes one, %s names it): %w", kafka.ErrUnavailable, Image(), ImageEnv, err)
	}
	return nil
}

// nodes are the brokers of a cluster.
type nodes struct {
	config     kafka.Config
	engine     *testcontainers.DockerClient
	net        *testcontainers.DockerNetwork
	containers []*testcontainers.DockerContainer
	ports      []int

	mu   sync.Mutex
	down map[int32]bool // killed by us
}

// label marks all that is ours in an engine, so that what a test leaves that was
// cut short can be told and removed.
var label = map[string]string{"sharetxn.tests": "1"}

// limit bounds a single thing asked of the engine.
const limit = 30 * time.Second

// Start starts n brokers and waits until all answer. Their ports are fixed, so
// that a broker that is started again has its old address.
func Start(ctx context.Context, n int, settings ...kafka.Setting) (*kafka.Cluster, error) {
	if err := Available(ctx); err != nil {
		return nil, err
	}
	ns := &nodes{config: kafka.Configure(n, settings...), containers: make([]*testcontainers.DockerContainer, n), down: make(map[int32]bool)}
	c := &kafka.Cluster{Nodes: ns, Kind: kafka.Container, Version: version(Image()), Brokers: n}
	if err := ns.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if err := c.Ready(ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, c.Logs())
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (ns *nodes) start(ctx context.Context) (err error) {
	if ns.engine, err = testcontainers.NewDockerClientWithOpts(ctx); err != nil {
		return err
	}
	if ns.ports, err = kafka.FreePorts(len(ns.containers)); err != nil {
		return err
	}
	// Brokers find each other by name, which only a network of our own offers.
	if ns.net, err = network.New(ctx, network.WithLabels(label)); err != nil {
		return err
	}
	errs := make([]error, len(ns.containers))
	var wg sync.WaitGroup
	for i := range ns.containers {
		wg.Go(func() { ns.containers[i], errs[i] = ns.run(ctx, i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (ns *nodes) run(ctx context.Context, i int) (*testcontainers.DockerContainer, error) {
	const inside = "9092/tcp"
	name := fmt.Sprint("kafka", i+1)
	return testcontainers.Run(ctx, Image(),
		network.WithNetwork([]string{name}, ns.net),
		testcontainers.WithLabels(label),
		testcontainers.WithEnv(ns.env(i)),
		testcontainers.WithExposedPorts(inside),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = dockernet.PortMap{dockernet.MustParsePort(inside): {{HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: fmt.Sprint(ns.ports[i])}}}
		}))
}

// env are a broker's settings in the form that the images read. Brokers reach
// each other under their own names, also a single one itself: transactions and
// share groups write through a connection that it opens to itself.
func (ns *nodes) env(i int) map[string]string {
	var voters []string
	for id := range ns.containers {
		voters = append(voters, fmt.Sprintf("%d@kafka%d:9093", id+1, id+1))
	}
	env := map[string]string{
		"CLUSTER_ID":                 kafka.ClusterID,
		"KAFKA_HEAP_OPTS":            strings.Join(ns.config.JVM, " "),
		"KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+ExitOnOutOfMemoryError",
	}
	for _, l := range slices.Concat([]kafka.Line{
		{Key: "node.id", Value: fmt.Sprint(i + 1)},
		{Key: "controller.quorum.voters", Value: strings.Join(voters, ",")},
		{Key: "listeners", Value: "PLAINTEXT://:9092,CONTROLLER://:9093,INTERNAL://:9094"},
		{Key: "advertised.listeners", Value: fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,INTERNAL://kafka%d:9094", ns.ports[i], i+1)},
		{Key: "inter.broker.listener.name", Value: "INTERNAL"},
		{Key: "listener.security.protocol.map", Value: "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT"},
		{Key: "log.dirs", Value: "/var/lib/kafka/data"},
	}, ns.config.Lines) {
		env["KAFKA_"+strings.ToUpper(strings.ReplaceAll(l.Key, ".", "_"))] = l.Value
	}
	return env
}

func (ns *nodes) Seeds() []string {
	var seeds []string
	for _, port := range ns.ports {
		seeds = append(seeds, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return seeds
}

// ask does one thing with a broker's container.
func (ns *nodes) ask(id int32, do func(ctx context.Context, container string) error) error {
	if id < 1 || int(id) > len(ns.containers) {
		return fmt.Errorf("no broker %d", id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return do(ctx, ns.containers[id-1].GetContainerID())
}

func (ns *nodes) setDown(id int32, down bool) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.down[id] = down
}

func (ns *nodes) Kill(id int32) error {
	return ns.ask(id, func(ctx context.Context, name string) error {
		ns.setDown(id, true)
		ended := ns.engine.ContainerWait(ctx, name, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		if _, err := ns.engine.ContainerKill(ctx, name, client.ContainerKillOptions{Signal: "SIGKILL"}); err != nil {
			return err
		}
		select {
		case <-ended.Result:
			return nil
		case err := <-ended.Error:
			return err
		}
	})
}

func (ns *nodes) Restart(id int32) error {
	return ns.ask(id, func(ctx context.Context, name string) error {
		if _, err := ns.engine.ContainerStart(ctx, name, client.ContainerStartOptions{}); err != nil {
			return err
		}
		ns.setDown(id, false)
		return nil
	})
}

func (ns *nodes) Pause(id int32) error {
	return ns.ask(id, func(ctx context.Context, name string) error {
		_, err := ns.engine.ContainerPause(ctx, name, client.ContainerPauseOptions{})
		return err
	})
}

func (ns *nodes) Resume(id int32) error {
	return ns.ask(id, func(ctx context.Context, name string) error {
		_, err := ns.engine.ContainerUnpause(ctx, name, client.ContainerUnpauseOptions{})
		return err
	})
}

func (ns *nodes) Process(id int32) (pid int) {
	_ = ns.ask(id, func(ctx context.Context, name string) error {
		found, err := ns.engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
		if err == nil {
			pid = found.Container.State.Pid // 0 while it does not run
		}
		return err
	})
	return pid
}

func (ns *nodes) Ended() error {
	var errs []error
	for i := range ns.containers {
		id := int32(i + 1)
		ns.mu.Lock()
		down := ns.down[id]
		ns.mu.Unlock()
		if down {
			continue
		}
		errs = append(errs, ns.ask(id, func(ctx context.Context, name string) error {
			found, err := ns.engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
			if err != nil {
				return err
			}
			if s := found.Container.State; !s.Running {
				return fmt.Errorf("broker %d ended by itself: exit status %d %s", id, s.ExitCode, s.Error)
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

func (ns *nodes) Logs() string {
	var out strings.Builder
	for i, c := range ns.containers {
		if c == nil {
			fmt.Fprintf(&out, "broker %d never was\n", i+1)
			continue
		}
		err := ns.ask(int32(i+1), func(ctx context.Context, name string) error {
			log, err := ns.engine.ContainerLogs(ctx, name, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "60"})
			if err != nil {
				return err
			}
			defer log.Close()
			var text bytes.Buffer
			_, err = stdcopy.StdCopy(&text, &text, log)
			fmt.Fprintf(&out, "--- broker %d\n%s\n", i+1, &text)
			return err
		})
		if err != nil {
			fmt.Fprintf(&out, "broker %d's log: %v\n", i+1, err)
		}
	}
	return out.String()
}

// Said reads all that the engine kept of each container.
func (ns *nodes) Said(text string) (lines int, err error) {
	for i, c := range ns.containers {
		if c == nil {
			continue // it never was
		}
		if err := ns.ask(int32(i+1), func(ctx context.Context, name string) error {
			log, err := ns.engine.ContainerLogs(ctx, name, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
			if err != nil {
				return err
			}
			defer log.Close()
			var all bytes.Buffer
			if _, err := stdcopy.StdCopy(&all, &all, log); err != nil {
				return err
			}
			n, err := kafka.CountLines(&all, text)
			lines += n
			return err
		}); err != nil {
			return 0, fmt.Errorf("broker %d's log: %w", i+1, err)
		}
	}
	return lines, nil
}

// Stop removes the containers, their data and the network. Nobody will look at
// the data again, so brokers are not asked to end in good order.
func (ns *nodes) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	errs := make([]error, len(ns.containers))
	var wg sync.WaitGroup
	for i, c := range ns.containers {
		wg.Go(func() {
			if c != nil {
				errs[i] = c.Terminate(ctx, testcontainers.StopTimeout(0))
			}
		})
	}
	wg.Wait()
	if ns.net != nil {
		errs = append(errs, ns.net.Remove(ctx))
	}
	if ns.engine != nil {
		errs = append(errs, ns.engine.Close())
	}
	return errors.Join(errs...)
}
