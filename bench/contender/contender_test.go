package contender

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Each contender in Go reads and accepts everything, twice from one process, and
// says when the first records came.
func TestContenders(t *testing.T) {
	const records, size, partitions = 1500, 10, 2
	for _, name := range []string{"ours", "kgo", "floor"} {
		for _, fetch := range []int{0, 200} {
			t.Run(fmt.Sprintf("%s/fetch=%d", name, fetch), func(t *testing.T) {
				ctx := testkit.Deadline(t, time.Minute)
				b, err := broker.Start(broker.Config{Topics: map[string]int32{"in": partitions}, OffsetReset: "earliest", HeartbeatInterval: 100 * time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				feed(ctx, t, b, records, size, partitions)
				profile := filepath.Join(t.TempDir(), "cpu")
				p, err := StartGo(name, profile)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Stop()
				for _, group := range []string{"one", "two"} {
					first := 0
					r, err := p.Do(ctx, Job{Seeds: strings.Join(b.Seeds(), ","), Topic: "in", Group: group, Records: records, Fetch: fetch}, func() { first++ })
					if err != nil {
						t.Fatal(err)
					}
					if name == "floor" {
						r.Bytes = records * size // it does not look
					}
					if r.Records != records || r.Bytes != records*size || r.First < 1 || r.Start <= 0 || r.Acked < r.Read || first != 1 {
						t.Errorf("group %s: %+v, first records told %d times", group, r, first)
					}
					for _, s := range b.PartitionStates(group) {
						if s.Available+s.Acquired > 0 {
							t.Errorf("group %s, partition %d is not acknowledged: %+v", group, s.Partition, s)
						}
					}
				}
				p.Stop()
				if s, err := os.Stat(profile); err != nil || s.Size() == 0 {
					t.Errorf("the profile: %v, %v", s, err)
				}
			})
		}
	}
}

// Each contender copies everything in transactions of at most so many records, once,
// and accepts it.
func TestTransform(t *testing.T) {
	const records, partitions = 300, 2
	for _, name := range []string{Ledger, AckAfterCommit, KgoOne, KgoTwo} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, time.Minute)
			b, err := broker.Start(broker.Config{
				Topics:      map[string]int32{"in": partitions, "out": partitions},
				OffsetReset: "earliest", HeartbeatInterval: 100 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			feed(ctx, t, b, records, 10, partitions)
			ensure(ctx, t, b, name)
			p, err := StartGo(name, "")
			if err != nil {
				t.Fatal(err)
			}
			defer p.Stop()
			r, err := p.Do(ctx, Job{Seeds: strings.Join(b.Seeds(), ","), Topic: "in", Group: "g", Records: records, Output: "out", Txn: 40}, func() {})
			if err != nil {
				t.Fatal(err)
			}
			if r.Records != records || r.First < 1 || r.First > 40 || r.Read <= 0 || r.Acked < r.Read {
				t.Errorf("%+v", r)
			}
			if r.Polls < records/40 || r.Requests["Produce"] < r.Polls-1 || r.Requests["EndTxn"] < r.Polls-1 {
				t.Errorf("%d transactions with requests %v", r.Polls, r.Requests)
			}
			out, err := b.Committed(ctx, "out")
			if err != nil || len(out) != records {
				t.Errorf("%d outputs of %d records, %v", len(out), records, err)
			}
			for _, s := range b.PartitionStates("g") {
				if s.Available+s.Acquired+s.Pending > 0 {
					t.Errorf("partition %d is not acknowledged: %+v", s.Partition, s)
				}
			}
		})
	}
}

// ensure makes the ledger of group g for who needs one.
func ensure(ctx context.Context, t *testing.T, b *broker.Cluster, name string) {
	t.Helper()
	if name != Ledger {
		return
	}
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...)))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := groupconfig.Set(ctx, cl, "g", groupconfig.IsolationLevel(groupconfig.ReadCommitted)); err != nil {
		t.Fatal(err)
	}
	if err := ledger.Ensure(ctx, cl, "g", []string{"in"}); err != nil {
		t.Fatal(err)
	}
}

func feed(ctx context.Context, t *testing.T, b *broker.Cluster, records, size, partitions int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Seeds()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var rs []*kgo.Record
	for i := range records {
		rs = append(rs, &kgo.Record{Topic: "in", Partition: int32(i % partitions), Value: make([]byte, size)})
	}
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// A job that fails says why, and a process that ends leaves nobody waiting.
func TestProcessFails(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	p, err := StartGo("floor", "")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	short, cancel := context.WithTimeoutCause(ctx, 100*time.Millisecond, errors.New("too long"))
	defer cancel()
	// A port that nobody listens on: the job goes on until it is given up.
	if _, err := p.Do(short, Job{Seeds: "127.0.0.1:1", Topic: "in", Group: "g", Records: 1}, func() {}); err == nil || !strings.Contains(err.Error(), "floor") {
		t.Errorf("a job that cannot be done: %v", err)
	}
	p.Stop() // the job under way does not hold it up

	p, err = StartGo("none", "")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	<-p.ended
	if _, err := p.Do(ctx, Job{}, func() {}); err == nil || !strings.Contains(err.Error(), `no contender named "none"`) {
		t.Errorf("a process that ended: %v", err)
	}
}

// The lines between the two sides, without a process.
func TestServe(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	in, jobs := io.Pipe()
	var out strings.Builder
	err := make(chan error)
	go func() {
		err <- serve(ctx, in, &out, func(ctx context.Context, j Job, w *watch) error {
			switch j.Topic {
			case "bad":
				return errors.New("refused")
			case "endless":
				<-ctx.Done()
				return context.Cause(ctx)
			}
			w.polled(0, 0)
			w.polled(2, 20)
			w.polled(3, 30)
			return nil
		})
	}()
	for _, line := range []string{`{"topic":"good"}`, `{"topic":"bad"}`, `{"topic":"endless"}`} {
		if _, err := io.WriteString(jobs, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	_ = jobs.Close() // nobody waits for the endless one
	if err := <-err; err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"first":true}`, `"records":5,"bytes":50,"first":2,`, `{"error":"refused"}`, `{"error":"EOF"}`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in the answers:\n%s", want, &out)
		}
	}

	for _, line := range []string{"{", ""} {
		if err := serve(ctx, strings.NewReader(line), io.Discard, nil); (err == nil) != (line == "") {
			t.Errorf("input %q: %v", line, err)
		}
	}
}

func TestTail(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	var end tail
	for range 300 {
		_, _ = end.Write([]byte("0123456789"))
	}
	_, _ = end.Write([]byte("last \n"))
	if got := end.String(); len(got) > 2000 || !strings.HasSuffix(got, "789last") {
		t.Errorf("%d bytes that end with %q", len(got), got[len(got)-10:])
	}
}
