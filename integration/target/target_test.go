package target

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func started(ctx context.Context, t *testing.T, kind kafka.Kind, n int) *kafka.Cluster {
	t.Helper()
	k, err := Open(ctx, kind, t.TempDir(), n)
	Require(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(k.Logs())
		}
		if err := k.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := dial(k.Seeds()[0]); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("after Stop a broker answers: %v", err)
		}
	})
	if k.Kind != kind || k.Brokers != n || len(k.Seeds()) != n {
		t.Fatalf("asked for %d of kind %s, got %+v", n, kind, k)
	}
	return k
}

func dial(addr string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err != nil {
		return "", err
	}
	return "connected", conn.Close()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func client(t *testing.T, k *kafka.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(k.Seeds()...), kgo.MetadataMinAge(10 * time.Millisecond), kgo.DefaultProduceTopic("kept")}, opts...)...)
	must(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// own are the kinds of clusters that tests may disturb.
func own() []kafka.Kind {
	return slices.DeleteFunc(Kinds(), func(k kafka.Kind) bool { return k == kafka.Existing })
}

// A broker that is killed is gone, comes back at its address with its data, and
// one that is paused neither answers nor goes.
func TestOneBroker(t *testing.T) {
	for _, kind := range own() {
		t.Run(string(kind), func(t *testing.T) {
			ctx := testkit.Deadline(t, 3*time.Minute)
			k := started(ctx, t, kind, 1)
			cl := client(t, k)
			_, err := kadm.NewClient(cl).CreateTopic(ctx, 1, -1, nil, "kept")
			must(t, err)
			must(t, cl.ProduceSync(ctx, kgo.StringRecord("before"), kgo.StringRecord("and")).FirstErr())

			must(t, k.Kill(1))
			if _, err := dial(k.Seeds()[0]); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a killed broker: %v, want a refused connection", err)
			}
			if err := k.Ended(); err != nil {
				t.Errorf("a broker that we killed: %v", err)
			}
			must(t, k.Restart(1))
			must(t, k.Ready(ctx))
			reader := client(t, k, kgo.ConsumeTopics("kept"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			var got []string
			for len(got) < 2 {
				fs := reader.PollFetches(ctx)
				must(t, fs.Err())
				fs.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
			}
			if want := []string{"before", "and"}; !slices.Equal(got, want) {
				t.Errorf("after the restart: %v, want %v", got, want)
			}

			calm := client(t, k) // whose connection is no older than the restart
			must(t, calm.Ping(ctx))
			must(t, k.Pause(1))
			asking, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			if err := calm.Ping(asking); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a paused broker: %v, want no answer", err)
			}
			if _, err := dial(k.Seeds()[0]); err != nil {
				t.Errorf("a paused broker refuses connections: %v", err)
			}
			must(t, k.Resume(1))
			must(t, client(t, k).Ping(ctx))

			for text, want := range map[string]int{"Kafka Server started": 2, "what no broker says": 0} {
				if n, err := k.Said(text); err != nil || n != want {
					t.Errorf("%d lines have %q: %v, want %d", n, text, err, want)
				}
			}
			for _, err := range []error{k.Kill(2), k.Restart(0), k.Pause(9)} {
				if err == nil {
					t.Error("a broker that does not exist was disturbed")
				}
			}
		})
	}
}

// With one of three dead another one leads, and nothing acknowledged is lost.
func TestThreeBrokers(t *testing.T) {
	for _, kind := range own() {
		t.Run(string(kind), func(t *testing.T) {
			ctx := testkit.Deadline(t, 4*time.Minute)
			k := started(ctx, t, kind, 3)
			cl := client(t, k, kgo.DefaultProduceTopic("led"))
			adm := kadm.NewClient(cl)
			_, err := adm.CreateTopic(ctx, 1, -1, nil, "led")
			must(t, err)
			leader := func() int32 {
				d, err := adm.ListTopics(ctx, "led")
				if err != nil || len(d["led"].Partitions) == 0 {
					return -1
				}
				return d["led"].Partitions[0].Leader
			}
			testkit.Eventually(ctx, t, "a broker leads", func() bool { return leader() > 0 })
			first := leader()
			must(t, cl.ProduceSync(ctx, kgo.StringRecord("before")).FirstErr())
			must(t, k.Kill(first))
			testkit.Eventually(ctx, t, "another broker leads", func() bool { l := leader(); return l > 0 && l != first })
			must(t, cl.ProduceSync(ctx, kgo.StringRecord("after")).FirstErr())
			must(t, k.Restart(first))
			must(t, k.Ready(ctx))
			ends, err := adm.ListEndOffsets(ctx, "led")
			must(t, err)
			if o, ok := ends.Lookup("led", 0); !ok || o.Err != nil || o.Offset != 2 {
				t.Errorf("2 records were acknowledged; the end is %+v", o)
			}
		})
	}
}

// A cluster that exists is used, and left alone.
func TestExisting(t *testing.T) {
	ctx := testkit.Deadline(t, 3*time.Minute)
	kinds := own()
	if len(kinds) == 0 {
		k, err := Open(ctx, kafka.Existing, "", 1)
		must(t, err)
		leftAlone(ctx, t, k)
		return
	}
	host := started(ctx, t, kinds[0], 1)
	t.Setenv(kafka.BootstrapEnv, host.Seeds()[0])
	if got := Kinds(); !slices.Equal(got, []kafka.Kind{kafka.Existing}) {
		t.Errorf("with %s tests run on %v", kafka.BootstrapEnv, got)
	}
	k, err := Start(ctx, t.TempDir(), 1)
	must(t, err)
	if k.Brokers != 1 || !slices.Equal(k.Seeds(), host.Seeds()) {
		t.Errorf("joined %+v", k)
	}
	leftAlone(ctx, t, k)
	if _, err := dial(host.Seeds()[0]); err != nil {
		t.Errorf("the cluster that existed is gone: %v", err)
	}
}

func leftAlone(ctx context.Context, t *testing.T, k *kafka.Cluster) {
	t.Helper()
	must(t, k.Ready(ctx))
	if k.Kind != kafka.Existing || k.Version == "" {
		t.Errorf("joined %+v", k)
	}
	_, three := Open(ctx, kafka.Existing, "", 3)
	_, said := k.Said("Kafka Server started")
	for _, err := range []error{k.Kill(1), k.Restart(1), k.Pause(1), k.Resume(1), three, said} {
		if !errors.Is(err, kafka.ErrNotOurs) || !strings.Contains(err.Error(), kafka.BootstrapEnv) {
			t.Errorf("disturbing a cluster that exists: %v", err)
		}
	}
	must(t, k.Stop())
}

// A cluster that was named and does not answer is a failure, never a skip.
func TestExistingThatIsNot(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	ports, err := kafka.FreePorts(1)
	must(t, err)
	t.Setenv(kafka.BootstrapEnv, fmt.Sprintf("127.0.0.1:%d", ports[0]))
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := Start(short, t.TempDir(), 1); err == nil || errors.Is(err, kafka.ErrUnavailable) || errors.Is(err, kafka.ErrNotOurs) {
		t.Errorf("nobody answers at %s: %v", os.Getenv(kafka.BootstrapEnv), err)
	}
}

// What the machine lacks is told by name, and an unknown kind is a mistake.
func TestWhatIsMissing(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	t.Setenv("PATH", t.TempDir())
	t.Setenv(kafka.BootstrapEnv, "")
	t.Setenv(KindEnv, string(kafka.Process))
	if _, err := Start(ctx, t.TempDir(), 1); !errors.Is(err, kafka.ErrUnavailable) || !strings.Contains(err.Error(), "java") {
		t.Errorf("without Java: %v", err)
	}
	offers := Offers(ctx)
	if len(offers) != 1 || !strings.HasPrefix(offers[0].String(), "process: none, ") {
		t.Errorf("without Java the machine offers %v", offers)
	}
	if got := Tools(); !slices.Equal(got, []string{"javac", "jlink"}) {
		t.Errorf("without a JDK these are missing: %v", got)
	}
	t.Setenv(KindEnv, "podman")
	if _, err := Start(ctx, t.TempDir(), 1); err == nil || errors.Is(err, kafka.ErrUnavailable) || !strings.Contains(err.Error(), "podman") {
		t.Errorf("a kind that does not exist: %v", err)
	}
}
