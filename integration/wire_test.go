package integration

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Why neither an API key nor a feature level proves staging: stock Kafka 4.4
// has both, and means something else.
func TestWhatStockKafkaAdvertises(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 20*time.Second)
	w := open(t, k)
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "sharetxn", "0"
	kresp, err := w.plain.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	resp := kresp.(*kmsg.ApiVersionsResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		t.Fatal(err)
	}
	levels, keys := make(map[string]int16), make(map[int16]int16)
	for _, f := range resp.FinalizedFeatures {
		levels[f.Name] = f.MaxVersionLevel
	}
	for _, key := range resp.ApiKeys {
		keys[key.ApiKey] = key.MaxVersion
	}
	if levels["transaction.version"] != 2 {
		t.Errorf("transaction.version %d, want 2", levels["transaction.version"])
	}
	if v, ok := keys[keyEndTxn]; !ok || v < 5 {
		t.Errorf("EndTxn up to v%d (there: %v), want v5", v, ok)
	}
	if _, ok := keys[95]; ok {
		t.Error("key 95 is advertised: the draft's number is taken")
	}
	if k.Version != kafka.DefaultVersion {
		return // older versions have less, newer ones may have more
	}
	if levels["share.version"] != 2 {
		t.Errorf("share.version %d, want 2", levels["share.version"])
	}
	for _, key := range []int16{93, 94} {
		if v, ok := keys[key]; !ok || v != 0 {
			t.Errorf("key %d up to v%d (there: %v), want v0 of another API", key, v, ok)
		}
	}
}

// Why nothing may be tried: a broker answers an unknown key by closing the
// connection, with all that was under way on it.
func TestUnknownKeyCostsTheConnection(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 20*time.Second)
	for _, c := range []struct {
		name     string
		key      int16
		answered bool
	}{{"ApiVersions", 18, true}, {"the draft's", 95, false}} {
		t.Run(c.name, func(t *testing.T) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", k.Seeds()[0])
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			end, _ := ctx.Deadline()
			if err := conn.SetDeadline(end); err != nil {
				t.Fatal(err)
			}
			// API key, version 0, correlation id 7, no client id
			frame := binary.BigEndian.AppendUint32(nil, 10)
			frame = binary.BigEndian.AppendUint16(frame, uint16(c.key))
			frame = append(frame, 0, 0, 0, 0, 0, 7, 0xff, 0xff)
			if _, err := conn.Write(frame); err != nil {
				t.Fatal(err)
			}
			var answer [8]byte
			_, err = io.ReadFull(conn, answer[:])
			if c.answered {
				if id := binary.BigEndian.Uint32(answer[4:]); err != nil || id != 7 {
					t.Fatalf("correlation id %d, %v", id, err)
				}
				return
			}
			if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("%x, %v; want a closed connection", answer, err)
			}
		})
	}
}
