package endurance

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// job is what a member is told, as JSON where it is a process of its own.
type job struct {
	Seeds        []string
	Group, Topic string
	Logs         []string // files, one for each member to be
	Heap         string   // file for samples of the heap; empty: none

	log slog.Handler // of the library
}

// jobEnv names the variable with which the test binary becomes members.
const jobEnv = "SHARETXN_ENDURANCE_JOB"

// child is the main function of a process of members. It ends in good order when
// its standard input does: when its parent says so, or is gone.
func child(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	j.log = slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})
	return j.run(ctx)
}

// run is a number of members until ctx ends.
func (j job) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(j.Logs)+1)
	var wg sync.WaitGroup
	for _, name := range j.Logs {
		wg.Go(func() { errs <- j.member(ctx, name); cancel() })
	}
	if j.Heap != "" {
		wg.Go(func() { errs <- sampleHeap(ctx, j.Heap) })
	}
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// member consumes and accepts until ctx ends, and leaves in good order.
func (j job) member(ctx context.Context, name string) (err error) {
	log, err := createLog(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.close()) }()
	cl, err := sharetxn.Connect(
		sharetxn.Kafka(kgo.SeedBrokers(j.Seeds...), kgo.MetadataMinAge(100*time.Millisecond)),
		sharetxn.Logger(slog.New(j.log)))
	if err != nil {
		return err
	}
	defer cl.Close()
	c, err := shareconsumer.New(cl, j.Group, shareconsumer.Topics(j.Topic), shareconsumer.OnAcknowledged(func(a shareconsumer.AckResult) {
		_ = log.write(answers(a)...) // a failure is told by the next write
	}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for b, err := range c.Batches(ctx) {
		if sharetxn.IsFatal(err) {
			return err
		}
		if err != nil {
			continue // brokers die here; the loop goes on
		}
		if err := log.write(tries(b)...); err != nil {
			return err
		}
		b.AcceptRest()
		// What it could not send comes again, to this member or another.
		if err := b.CommitAsync(); sharetxn.IsFatal(err) {
			return err
		}
	}
	return nil
}

// tries are the entries of a batch that is about to be accepted.
func tries(b *shareconsumer.Batch) (entries []entry) {
	for p, rs := range b.ByPartition() {
		for _, r := range rs {
			count := uint8(min(r.DeliveryCount(), 255))
			if n := len(entries); n > 0 && entries[n-1].partition == p.Partition && entries[n-1].last+1 == r.Offset {
				entries[n-1].last++
				entries[n-1].deliveries = max(entries[n-1].deliveries, count)
				continue
			}
			entries = append(entries, entry{tried, count, p.Partition, r.Offset, r.Offset})
		}
	}
	return entries
}

// answers are the entries of what brokers said. Releases are no concern here.
func answers(a shareconsumer.AckResult) (entries []entry) {
	k := accepted
	switch {
	case sharetxn.ClassOf(a.Err) == sharetxn.ClassUnknown:
		k = unknown
	case a.Err != nil:
		k = refused
	}
	for _, b := range a.Batches {
		for run := range b.Runs() {
			if run.Type == acks.Accept {
				entries = append(entries, entry{k, 0, a.Partition.Partition, run.First, run.Last})
			}
		}
	}
	return entries
}
