package sharetxn

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type countTxns struct{ HookTxn }

func TestConnectRefusesRolesByName(t *testing.T) {
	testkit.Deadline(t, 30*time.Second)
	for name, opt := range map[string]kgo.Opt{
		"ConsumerGroup":          kgo.ConsumerGroup("g"),
		"ShareGroup":             kgo.ShareGroup("g"),
		"ConsumeTopics":          kgo.ConsumeTopics("t"),
		"ConsumePartitions":      kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset()}}),
		"TransactionalID":        kgo.TransactionalID("x"),
		"TransactionTimeout":     kgo.TransactionTimeout(time.Second),
		"RequiredAcks":           kgo.RequiredAcks(kgo.LeaderAck()),
		"DisableIdempotentWrite": kgo.DisableIdempotentWrite(),
		"Rack":                   kgo.Rack("r"),
		"MaxVersions":            kgo.MaxVersions(kversion.V3_8_0()),
		"WithLogger":             kgo.WithLogger(kgo.BasicLogger(io.Discard, kgo.LogLevelError, nil)),
	} {
		t.Run(name, func(t *testing.T) {
			opts := []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1"), opt}
			switch name {
			case "RequiredAcks":
				opts = append(opts, kgo.DisableIdempotentWrite()) // kgo itself refuses it otherwise
			}
			cl, err := Connect(Kafka(opts...))
			if cl != nil || ClassOf(err) != ClassUsage || !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "kgo."+name) {
				t.Fatalf("got %v, %v", cl, err)
			}
		})
	}
}

// The neighbouring case: whatever concerns the connection only is taken.
func TestConnectTakesConnectionOptions(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	cl, err := Connect(
		Kafka(kgo.SeedBrokers("127.0.0.1:1"), kgo.ClientID("svc"), kgo.DialTimeout(time.Second)),
		Kafka(kgo.SASL(scram.Auth{User: "u", Pass: "p"}.AsSha512Mechanism()), kgo.DialTLS()),
		Logger(slog.New(slog.DiscardHandler)),
		WithHooks(countTxns{}),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	k, err := cl.Client(kgo.TransactionalID("own")) // a user's own client may have any role
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if id := k.OptValue(kgo.ClientID); id != "svc" {
		t.Fatalf("client id %v, want the cluster's", id)
	}
}

func TestConnectRefusesOtherMistakes(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for name, c := range map[string]struct {
		opt  Opt
		says string
	}{
		"hook of no kind":    {WithHooks(countTxns{}, struct{}{}), "hook 1"},
		"nil hook":           {WithHooks(nil), "hook 0"},
		"nil logger":         {Logger(nil), "Logger"},
		"bad seed":           {Kafka(kgo.SeedBrokers("host:port")), "Kafka"},
		"refused by kgo":     {Kafka(kgo.RequiredAcks(kgo.NoAck())), "Kafka"},
		"refused by kgo too": {Kafka(kgo.MaxBufferedRecords(0)), "Kafka"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Connect(c.opt)
			if ClassOf(err) != ClassUsage || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestClosedClusterSaysSo(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	cl, err := Connect(Kafka(kgo.SeedBrokers("127.0.0.1:1")))
	if err != nil {
		t.Fatal(err)
	}
	cl.Close()
	cl.Close()
	for name, f := range map[string]func() error{
		"Ping":         func() error { return cl.Ping(ctx) },
		"Capabilities": func() error { _, err := cl.Capabilities(ctx); return err },
		"Client":       func() error { _, err := cl.Client(); return err },
	} {
		if err := f(); !errors.Is(err, ErrClosed) || !IsFatal(err) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

func TestWrongAddressShowsAtTheFirstCall(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	cl, err := Connect(Kafka(kgo.SeedBrokers("127.0.0.1:1"), kgo.DialTimeout(time.Second)), Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := cl.Ping(short); err == nil || ClassOf(err) != ClassAbortable {
		t.Fatalf("got %v", err)
	}
}
