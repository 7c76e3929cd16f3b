package integration

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestCapabilitiesOfStockKafka(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 20*time.Second)
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(k.Seeds()...)))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	caps, err := cl.Capabilities(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if caps.SupportsStaging() || caps.TransactionVersion != 2 || len(caps.Brokers) != k.Brokers {
		t.Fatalf("capabilities of a stock broker: %+v", caps)
	}
	if row := caps.Brokers[0]; row.Key != 95 || row.MaxVer != -1 || row.Proven || row.Reason == "" {
		t.Fatalf("its row: %+v", row)
	}
}
