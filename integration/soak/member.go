package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/integration/chaos/task"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// job is what a process of members is told, as JSON.
type job struct {
	Seeds                       []string
	Group, Source, Output, Dead string
	Instance                    string
	Members                     int
	Held                        string        // file for samples of what the process holds
	Every                       time.Duration // a sample
}

// jobEnv names the variable with which the test binary becomes such a process.
const jobEnv = "SHARETXN_SOAK_JOB"

// child is the main function of such a process. It ends in good order when its
// standard input does: when its parent says so, or is gone.
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
	return j.run(ctx)
}

func (j job) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(j.Seeds...)),
		sharetxn.Logger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	if err != nil {
		return err
	}
	defer cl.Close()
	p, err := processor.New(cl, processor.Config{
		Group: j.Group, Topics: []string{j.Source}, Instance: j.Instance, Members: j.Members, Guarantee: processor.Ledger,
		DeadLetter: processor.DeadLetter{Topic: j.Dead}, Handler: j.handle,
	})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var held error
	wg.Go(func() {
		held = hold(ctx, j.Held, j.Every)
		cancel()
	})
	err = p.Run(ctx)
	cancel()
	wg.Wait()
	return errors.Join(err, held)
}

// handle does the task.
func (j job) handle(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
	tag := task.Tag{Round: 1, At: task.At{Topic: in.Topic, Partition: in.Partition, Offset: in.Offset}, Digest: task.Digest(in.Value)}
	outputs := make([]*kgo.Record, task.Outputs(in.Value))
	for i := range outputs {
		tag.Index = i + 1
		outputs[i] = &kgo.Record{Topic: j.Output, Key: strconv.AppendInt(nil, in.Offset+int64(i), 10), Value: tag.Encode()}
	}
	return outputs, nil
}

// held is what a process holds, after a collection.
type held struct {
	At         time.Time
	Heap       uint64 // bytes of what is reachable
	Goroutines int
}

// hold writes what this process holds to a file, every now and then until ctx
// ends.
func hold(ctx context.Context, name string, every time.Duration) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	to := json.NewEncoder(f)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		if err := to.Encode(held{time.Now(), m.HeapAlloc, runtime.NumGoroutine()}); err != nil {
			return err
		}
	}
}

func readHeld(name string) (all []held, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for from := json.NewDecoder(f); ; {
		var h held
		switch err := from.Decode(&h); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return all, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, h)
	}
}
