package broker_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/journal"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/twmb/franz-go/pkg/kgo"
)

var transactions = flag.Int("transactions", 60, "how many TestEpochs has one id do; where they are fewer than there are epochs, it begins as near to the last as is half of them")

// lastEpoch is the highest that a producer id is used at (KIP-360).
const lastEpoch = math.MaxInt16 - 1

// One transactional id does one transaction after the other, past the last epoch
// of its producer id: the next id takes over, and every transaction is there once,
// those that were aborted not at all.
func TestEpochs(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Minute)
	n := *transactions
	cfg := broker.Config{Topics: map[string]int32{"out": 1}}
	if n <= lastEpoch {
		cfg.Data = t.TempDir()
		age(ctx, t, cfg, lastEpoch-int16(n/2))
	}
	c, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cl := connect(t, c)
	defer cl.Close()
	p, err := producer.New(cl, "long")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	ids := make(map[int64]int16) // to the highest epoch seen
	var want []string
	for i := range n {
		tx, err := p.Begin(ctx)
		if err != nil {
			t.Fatalf("transaction %d: %v", i, err)
		}
		if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: fmt.Append(nil, i)}); err != nil {
			t.Fatalf("transaction %d: %v", i, err)
		}
		if i%7 == 3 {
			if err := tx.Abort(ctx); err != nil {
				t.Fatalf("transaction %d: %v", i, err)
			}
		} else {
			if outcome, err := tx.Commit(ctx); outcome != sharetxn.Committed || err != nil {
				t.Fatalf("transaction %d: %v, %v", i, outcome, err)
			}
			want = append(want, strconv.Itoa(i))
		}
		v := c.Transactions()[0]
		ids[v.ProducerID] = max(ids[v.ProducerID], v.ProducerEpoch)
	}
	records, err := c.Committed(ctx, "out")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records {
		got = append(got, string(r.Value))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d transactions are visible, want %d", len(got), len(want))
	}
	if len(ids) != 2 {
		t.Errorf("producer ids with their epochs: %v, want two", ids)
	}
	full := 0
	for _, epoch := range ids {
		if epoch == lastEpoch {
			full++
		}
	}
	if full != 1 {
		t.Errorf("producer ids with their epochs: %v, want one at %d", ids, lastEpoch)
	}
}

func connect(t *testing.T, c *broker.Cluster) *sharetxn.Cluster {
	t.Helper()
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(c.Seeds()...), kgo.DisableClientMetrics()), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// age makes a folder whose id "long" has come to an epoch.
func age(ctx context.Context, t *testing.T, cfg broker.Config, epoch int16) {
	t.Helper()
	c, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cl := connect(t, c)
	p, err := producer.New(cl, "long")
	if err == nil {
		var tx *producer.Txn
		if tx, err = p.Begin(ctx); err == nil {
			if err = tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("young")}); err == nil {
				err = tx.Abort(ctx)
			}
		}
		_ = p.Close()
	}
	cl.Close()
	c.Close()
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(cfg.Data, "state"))
	if err != nil {
		t.Fatal(err)
	}
	var x txn.Image
	raw, _ := j.Get("txn/long")
	if err := json.Unmarshal(raw, &x); err != nil {
		t.Fatal(err)
	}
	x.ProducerEpoch, x.Prev = epoch, nil
	if raw, err = json.Marshal(x); err != nil {
		t.Fatal(err)
	}
	j.Put("txn/long", raw)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}
