// Command bench holds the library against the nearest thing without it, and
// prints one table of rates and ratios:
//
//   - transactions of one record, on stock Kafka: a producer against kgo's loop;
//   - records consumed, copied and acknowledged, on an embedded broker: a
//     Processor against plain acknowledgements, which promise less.
//
// It measures and judges nothing. The first part needs Java and Maven; without
// them it says so and only the second is done. docs/benchmarks.md tells how to
// read the table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	rounds := flag.Int("rounds", 9, "`rounds`, each of which runs everything once")
	profile := flag.String("profile", "", "`file` for a CPU profile of the part on the embedded broker")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	m := measurement{rounds: *rounds, transactions: 100, copies: []copies{{2000, 1}, {40_000, 100}, {200_000, 1000}}, profile: *profile}
	if err := m.take(ctx, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measurement is all that is measured.
type measurement struct {
	rounds       int
	transactions int // a run
	copies       []copies
	profile      string // file; empty: none
}

type copies struct{ records, perTxn int }

// take measures and prints; progress tells what goes on.
func (m measurement) take(ctx context.Context, out, progress io.Writer) error {
	standings, missing, err := m.onKafka(ctx, progress)
	if err != nil {
		return err
	}
	more, err := m.embedded(ctx, progress)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s %s/%s, %d processors; %d rounds; medians, and ratios to the first of each part within a round\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), m.rounds)
	if missing != nil {
		fmt.Fprintf(out, "Nothing was measured on real Kafka, which needs Java and Maven: %v\n", missing)
	}
	write(out, append(standings, more...))
	return nil
}

// onKafka is the part on stock Kafka; missing says why there is none here.
func (m measurement) onKafka(ctx context.Context, progress io.Writer) (_ []standing, missing, err error) {
	dir, err := os.MkdirTemp("", "sharetxn-bench-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintln(progress, "starting Kafka", kafka.Version())
	starting, cancel := context.WithTimeout(ctx, 3*time.Minute) // the jars may have to be fetched
	defer cancel()
	k, err := kafka.Start(starting, dir, 1)
	if errors.Is(err, kafka.ErrUnavailable) {
		return nil, err, nil
	} else if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, k.Stop()) }()
	const topic = "bench"
	if err := createTopic(ctx, k.Seeds(), topic); err != nil {
		return nil, nil, err
	}
	c := transactions(k.Seeds(), topic, m.transactions)
	fmt.Fprintln(progress, c.title)
	s, err := c.hold(ctx, m.rounds)
	return []standing{s}, nil, err
}

func createTopic(ctx context.Context, seeds []string, topic string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return err
	}
	defer cl.Close()
	_, err = kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, topic)
	return err
}

// embedded is the part on the embedded broker.
func (m measurement) embedded(ctx context.Context, progress io.Writer) (standings []standing, err error) {
	if m.profile != "" {
		f, err := os.Create(m.profile)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return nil, err
		}
		defer pprof.StopCPUProfile()
	}
	for _, n := range m.copies {
		c := consumption(n.records, n.perTxn)
		fmt.Fprintln(progress, c.title)
		s, err := c.hold(ctx, m.rounds)
		if err != nil {
			return nil, err
		}
		standings = append(standings, s)
	}
	return standings, nil
}
