package processor

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

func valid() Config {
	return Config{
		Group: "g", Topics: []string{"in"}, DeadLetter: DeadLetter{Topic: "dead"},
		Handler: func(context.Context, *Record) ([]*kgo.Record, error) { return nil, nil },
	}
}

// New names the field that is wrong, and connects to nothing.
func TestNewChecks(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers("127.0.0.1:1")))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := New(cl, valid()); err != nil {
		t.Fatalf("a valid Config: %v", err)
	}
	batch := func(context.Context, *Batch) error { return nil }
	for name, c := range map[string]struct {
		edit  func(*Config)
		field string
	}{
		"no group":             {func(c *Config) { c.Group = "" }, "Group"},
		"no topics":            {func(c *Config) { c.Topics = nil }, "Topics"},
		"an empty topic":       {func(c *Config) { c.Topics = []string{""} }, "Topics"},
		"no handler":           {func(c *Config) { c.Handler = nil }, "Handler"},
		"two handlers":         {func(c *Config) { c.BatchHandler = batch }, "Handler"},
		"concurrent batches":   {func(c *Config) { c.Handler, c.BatchHandler, c.Concurrency = nil, batch, 2 }, "Concurrency"},
		"no dead letter":       {func(c *Config) { c.DeadLetter = DeadLetter{} }, "DeadLetter"},
		"two ways":             {func(c *Config) { c.DeadLetter.Discard = true }, "DeadLetter"},
		"build and discard":    {func(c *Config) { c.DeadLetter = DeadLetter{Discard: true, Build: standard} }, "DeadLetter.Build"},
		"a loop":               {func(c *Config) { c.DeadLetter.Topic = "in" }, "DeadLetter.Topic"},
		"letters to a ledger":  {func(c *Config) { c.DeadLetter.Topic = "__sharetxn_ledger.h" }, "DeadLetter.Topic"},
		"works on a ledger":    {func(c *Config) { c.Topics = []string{"in", "__sharetxn_ledger.h"} }, "Topics"},
		"members":              {func(c *Config) { c.Members = -1 }, "Members"},
		"concurrency":          {func(c *Config) { c.Concurrency = -1 }, "Concurrency"},
		"input isolation":      {func(c *Config) { c.InputIsolation = 3 }, "InputIsolation"},
		"records":              {func(c *Config) { c.MaxRecords = -1 }, "MaxRecords"},
		"bytes":                {func(c *Config) { c.MaxBytes = -1 }, "MaxBytes"},
		"wait":                 {func(c *Config) { c.MaxWait = -1 }, "MaxWait"},
		"handler timeout":      {func(c *Config) { c.HandlerTimeout = -1 }, "HandlerTimeout"},
		"transaction timeout":  {func(c *Config) { c.TransactionTimeout = time.Millisecond }, "TransactionTimeout"},
		"lock margin":          {func(c *Config) { c.LockMargin = time.Hour }, "LockMargin"},
		"stop timeout":         {func(c *Config) { c.StopTimeout = -1 }, "StopTimeout"},
		"attempts":             {func(c *Config) { c.Failure.Attempts = -1 }, "Failure.Attempts"},
		"a kgo role":           {func(c *Config) { c.Kafka = []kgo.Opt{kgo.TransactionalID("mine")} }, "use Config.TransactionalID and Instance"},
		"kgo options that jar": {func(c *Config) { c.Kafka = []kgo.Opt{kgo.MaxBufferedRecords(-1)} }, "Kafka: max buffered records"},

		"an unknown guarantee":  {func(c *Config) { c.Guarantee = 9 }, "Guarantee(9)"},
		"an unknown fallback":   {func(c *Config) { c.Fallback = []Guarantee{AckAfterCommit, 9} }, "Fallback: Guarantee(9)"},
		"an id that is no text": {func(c *Config) { c.TransactionalID = "\xff" }, "transactional id"},
	} {
		cfg := valid()
		c.edit(&cfg)
		_, err := New(cl, cfg)
		if !errors.Is(err, sharetxn.ErrUsage) || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: %v, want a usage error that names %s", name, err, c.field)
		}
	}
	if _, err := New(nil, valid()); !errors.Is(err, sharetxn.ErrUsage) {
		t.Errorf("no cluster: %v", err)
	}
	cl.Close()
	if _, err := New(cl, valid()); !errors.Is(err, sharetxn.ErrClosed) {
		t.Errorf("a closed cluster: %v", err)
	}
}

func TestDefaults(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	c, err := valid().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.TransactionalID != "g" || c.Instance != host || c.Members != 1 || c.Concurrency != 1 || c.MaxRecords != 500 || c.Failure.Attempts != 3 ||
		c.StopTimeout != 20*time.Second || c.TransactionTimeout != 0 || c.Guarantee != Staged || c.MaxWait != 0 {
		t.Errorf("defaults %+v", c)
	}
	// An instance that ends in a number and a member must not meet.
	c.TransactionalID = "t"
	ids := make(map[string]bool)
	for _, instance := range []string{"a", "a-0", "a-1", "a-0-1"} {
		c.Instance = instance
		for m := range 3 {
			for _, id := range []string{c.transactionalID(m), c.transactionalID(m) + "-alt1"} {
				if ids[id] {
					t.Errorf("id %s is given twice", id)
				}
				ids[id] = true
			}
		}
	}
}

func TestParseGuarantee(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, g := range []Guarantee{Staged, Ledger, AckAfterCommit} {
		if got, err := ParseGuarantee(g.String()); got != g || err != nil {
			t.Errorf("%v: %v, %v", g, got, err)
		}
	}
	for _, s := range []string{"", "STAGED", "none"} {
		if _, err := ParseGuarantee(s); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
			t.Errorf("%q: %v", s, err)
		}
	}
}
