package differential

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/conformance"
	"github.com/sharetxn/sharetxn/integration/target"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	seeds = flag.Int("seeds", 100, "random lists to compare")
	first = flag.Uint64("first", 1, "seed of the first list")
	size  = flag.Int("size", 40, "operations of a list")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // lists wait most of the time
		panic(err)
	}
	testkit.Main(m)
}

// real is Kafka of the kind that the machine offers first.
func real(t *testing.T) conformance.Target {
	t.Helper()
	k, err := conformance.Real(t, target.Kinds()[0], 1)
	target.Require(t, err)
	conformance.Warm(t, k)
	return k
}

// compare runs a list on both clusters, each time with a topic and a group of
// its own.
func compare(ctx context.Context, t *testing.T, a, b conformance.Target, ops []Op, isolation string) *Difference {
	t.Helper()
	x, y := conformance.NewX(t, a, "differential"), conformance.NewX(t, b, "differential")
	sa, sb := newSide(ctx, x, isolation), newSide(ctx, y, isolation)
	defer sa.end(ctx)
	defer sb.end(ctx)
	d, err := run(ctx, sa, sb, ops)
	if err != nil {
		t.Fatalf("%v\n%s", err, Text(ops))
	}
	return d
}

func isolationOf(seed uint64) string {
	if seed%3 == 0 {
		return "read_committed"
	}
	return "read_uncommitted"
}

// Random lists are answered alike by Kafka and by the embedded broker.
func TestSeeds(t *testing.T) {
	testkit.Deadline(t, 9*time.Minute)
	a, b := real(t), conformance.Embedded(t, 1)
	var ran, operations atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for i := range *seeds {
			seed := *first + uint64(i)
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				ctx := testkit.Deadline(t, 5*time.Minute)
				ops := Generate(seed, *size)
				d := compare(ctx, t, a, b, ops, isolationOf(seed))
				ran.Add(1)
				operations.Add(int64(len(ops)))
				if d == nil {
					return
				}
				short := Reduce(ops[:d.At+1], func(less []Op) bool { return compare(ctx, t, a, b, less, isolationOf(seed)) != nil })
				if again := compare(ctx, t, a, b, short, isolationOf(seed)); again != nil {
					d = again
				}
				t.Errorf("seed %d, isolation %s: %v\nreplay: -first %d -seeds 1\n%s", seed, isolationOf(seed), d, seed, Text(short))
			})
		}
	})
	t.Logf("differential: %d seeds compared, %d operations", ran.Load(), operations.Load())
	if int(ran.Load()) != *seeds && !t.Failed() {
		t.Errorf("%d of %d seeds ran", ran.Load(), *seeds)
	}
}

// Lists that once found a difference.
func TestFound(t *testing.T) {
	testkit.Deadline(t, 5*time.Minute)
	files, err := filepath.Glob(filepath.Join("testdata", "*.ops"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d lists, %v", len(files), err)
	}
	a, b := real(t), conformance.Embedded(t, 1)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		ops, err := Parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, isolation := range []string{"read_uncommitted", "read_committed"} {
			t.Run(filepath.Base(file)+"/"+isolation, func(t *testing.T) {
				ctx := testkit.Deadline(t, time.Minute)
				if d := compare(ctx, t, a, b, ops, isolation); d != nil {
					t.Error(d)
				}
			})
		}
	}
}

// planted is the embedded broker with a fault.
type planted struct {
	conformance.Target
	c *broker.Cluster
}

func (p planted) Seeds() []string { return p.c.Seeds() }

// A difference that is put there on purpose is found and reduced to few
// operations; without it the same lists show none.
func TestPlanted(t *testing.T) {
	faults := map[string]func(kmsg.Response){
		"a delivery is not counted": func(r kmsg.Response) {
			if resp, ok := r.(*kmsg.ShareFetchResponse); ok {
				for i := range resp.Topics {
					for j := range resp.Topics[i].Partitions {
						for k, a := range resp.Topics[i].Partitions[j].AcquiredRecords {
							resp.Topics[i].Partitions[j].AcquiredRecords[k].DeliveryCount = min(a.DeliveryCount, 1)
						}
					}
				}
			}
		},
		"a refused acknowledgement passes": func(r kmsg.Response) {
			if resp, ok := r.(*kmsg.ShareAcknowledgeResponse); ok {
				for i := range resp.Topics {
					for j := range resp.Topics[i].Partitions {
						resp.Topics[i].Partitions[j].ErrorCode = 0
					}
				}
			}
		},
	}
	ctx := testkit.Deadline(t, 3*time.Minute)
	good := conformance.Embedded(t, 1)
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			c, err := broker.Start(broker.Config{
				Brokers: 1, Stock44: true, HeartbeatInterval: 500 * time.Millisecond, AssignmentInterval: time.Second,
				Intercept: func(broker.Request) broker.Action { return broker.Action{After: fault} },
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			bad := planted{good, c}
			for seed := uint64(1); seed <= 20; seed++ {
				ops := Generate(seed, *size)
				d := compare(ctx, t, good, bad, ops, "read_uncommitted")
				if d == nil {
					continue
				}
				if d := compare(ctx, t, good, conformance.Embedded(t, 1), ops, "read_uncommitted"); d != nil {
					t.Fatalf("without the fault: %v", d)
				}
				short := Reduce(ops[:d.At+1], func(less []Op) bool { return compare(ctx, t, good, bad, less, "read_uncommitted") != nil })
				if len(short) > 8 {
					t.Errorf("reduced only to %d operations:\n%s", len(short), Text(short))
				}
				return
			}
			t.Fatal("20 lists did not show it")
		})
	}
}

// A list survives being written and read, and the same seed gives the same.
func TestText(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	for seed := range uint64(200) {
		ops := Generate(seed, 50)
		back, err := Parse("# a comment\n\n" + Text(ops))
		if err != nil || !reflect.DeepEqual(ops, back) {
			t.Fatalf("seed %d: %v\n%s", seed, err, Text(ops))
		}
		if again := Generate(seed, 50); !reflect.DeepEqual(ops, again) {
			t.Fatalf("seed %d gives two lists", seed)
		}
	}
	for _, bad := range []string{"fetch", "dance m0 p0 n=1", "fetch m9 p0 n=1", "ack m0 p0 n=0 held:1:1", "ack m0 p0 n=0 held:1+1:x", "ack m0 p0 n=0 far:1+1:1"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// Reduce keeps what a failure needs and nothing else.
func TestReduce(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	ops := Generate(7, 60)
	need := []Op{ops[11], ops[40]}
	has := func(list []Op) bool {
		at := 0
		for _, o := range list {
			if at < len(need) && o.String() == need[at].String() {
				at++
			}
		}
		return at == len(need)
	}
	short := Reduce(ops, has)
	if !slices.EqualFunc(short, need, func(a, b Op) bool { return a.String() == b.String() }) {
		t.Errorf("reduced to:\n%s", Text(short))
	}
}
