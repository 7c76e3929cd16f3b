package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafka is an embedded cluster that looks like stock Kafka.
func kafka(t *testing.T, topics map[string]int32) (bootstrap string, b *broker.Cluster) {
	t.Helper()
	b, err := broker.Start(broker.Config{Stock44: true, Topics: topics})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return strings.Join(b.Seeds(), ","), b
}

// ledgers runs `sharetxn ledger` on it for group g.
func ledgers(ctx context.Context, bootstrap, command string, flags ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	args := append([]string{"ledger", command, "--bootstrap", bootstrap, "--group", "g"}, flags...)
	code = run(ctx, args, nil, &stdout, &stderr, &left)
	return code, stdout.String(), stderr.String()
}

// The commands one after the other, as an operator would run them: in words, and
// the same as JSON.
func TestLedgerCommands(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	bootstrap, b := kafka(t, map[string]int32{"a": 2, "b": 3})
	for i, step := range []struct {
		command string
		flags   []string
		code    int
		says    []string       // in words
		has     map[string]any // as JSON
	}{
		{"check", []string{"--topics", "a,b"}, exitWrong, []string{
			"FATAL   topic __sharetxn_ledger.g\n        is:   does not exist", "sharetxn ledger create --bootstrap " + bootstrap + " --group g --topics a,b", "advice  share.isolation.level"}, map[string]any{"fatal": 1.0}},
		{"status", nil, exitWrong, nil, nil},
		{"create", []string{"--topics", "a,b"}, exitOK, []string{"topic __sharetxn_ledger.g"}, map[string]any{"topic": "__sharetxn_ledger.g"}},
		{"check", []string{"--topics", "a,b"}, exitOK, []string{"advice  share.delivery.count.limit", "--add-config share.isolation.level=read_committed"}, map[string]any{"fatal": 0.0}},
		{"check", []string{"--topics", "a,b", "--read-committed"}, exitWrong, []string{"FATAL   share.isolation.level"}, map[string]any{"fatal": 1.0}},
		{"check", []string{"--topics", "a,b", "--transaction-timeout", "5m"}, exitWrong, []string{"FATAL   transaction timeout"}, map[string]any{"fatal": 1.0}},
		{"status", nil, exitOK, []string{"generation 1, guarantee ledger", "\n        all        0     0            0        3"}, map[string]any{"generation": 1.0, "guarantee": "ledger", "entries": 0.0, "records": 3.0}},
		{"truncate", nil, exitOK, []string{"0 offsets deleted"}, map[string]any{"deleted": 0.0}},
		{"reset", []string{"--to", "earliest"}, exitOK, []string{"begins at earliest"}, map[string]any{"to": "earliest"}},
		{"reset", []string{"--to", "2026-03-29T08:00:00Z"}, exitOK, []string{"begins at 2026"}, nil},
		{"reset", []string{"--to", "latest"}, exitOK, []string{"begins at latest"}, nil},
		{"status", nil, exitOK, []string{"guarantee ledger"}, map[string]any{"group": "g", "open": 0.0}},
		{"move", []string{"--to", "staged"}, exitOK, []string{"under guarantee staged, before under ledger; 0 records"}, map[string]any{"from": "staged", "accepted": 0.0}},
		{"check", []string{"--topics", "a,b"}, exitWrong, []string{"FATAL   guarantee of group g", "sharetxn ledger move --bootstrap " + bootstrap + " --group g --to ledger"}, map[string]any{"fatal": 1.0}},
	} {
		code, out, errs := ledgers(ctx, bootstrap, step.command, step.flags...)
		if code != step.code {
			t.Fatalf("step %d, %s: exit status %d, %q, %q", i, step.command, code, out, errs)
		}
		for _, text := range step.says {
			if !strings.Contains(out, text) {
				t.Errorf("step %d, %s: %q is not in %q", i, step.command, text, out)
			}
		}
		if step.has == nil {
			continue
		}
		code, out, errs = ledgers(ctx, bootstrap, step.command, append(slices.Clone(step.flags), "--json")...)
		var got map[string]any
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != step.code {
			t.Fatalf("step %d, %s --json: exit status %d, %q, %q: %v", i, step.command, code, out, errs, err)
		}
		for key, want := range step.has {
			if got[key] != want {
				t.Errorf("step %d, %s --json: %s is %v, want %v", i, step.command, key, got[key], want)
			}
		}
	}
	if b.TopicID("__sharetxn_ledger.g") == [16]byte{} {
		t.Error("no topic was made")
	}
}

// What goes wrong says what to do, with addresses that can be copied.
func TestLedgerErrors(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	bootstrap, b := kafka(t, map[string]int32{"a": 2})
	wrong := func(what, says string, command string, flags ...string) {
		t.Helper()
		code, out, errs := ledgers(ctx, bootstrap, command, flags...)
		if code != exitWrong || out != "" || !strings.Contains(errs, says) || strings.Contains(errs, "$BOOTSTRAP") || strings.Contains(errs, "sharetxn: sharetxn") {
			t.Errorf("%s: exit status %d, %q, %q", what, code, out, errs)
		}
	}
	create := "sharetxn ledger create --bootstrap " + bootstrap + " --group g --topics TOPICS"
	wrong("no ledger", create, "status")
	wrong("no ledger", create, "truncate")
	wrong("no ledger", create, "reset", "--to", "earliest")
	wrong("no source", "source topic z does not exist", "create", "--topics", "z")
	silent := make(chan struct{})
	b.SetIntercept(func(broker.Request) broker.Action { return broker.Action{Wait: silent} })
	wrong("silence", "context deadline exceeded", "status", "--timeout", "200ms")
	close(silent)
	b.SetIntercept(func(r broker.Request) broker.Action {
		m, ok := r.Message().(*kmsg.CreateTopicsRequest)
		if !ok {
			return broker.Action{}
		}
		resp := m.ResponseKind().(*kmsg.CreateTopicsResponse)
		x := kmsg.NewCreateTopicsResponseTopic()
		x.Topic, x.ErrorCode = m.Topics[0].Topic, 29 // TOPIC_AUTHORIZATION_FAILED
		resp.Topics = append(resp.Topics, x)
		return broker.Action{Answer: resp}
	})
	wrong("no right", "grant Create on topic __sharetxn_ledger.g", "create", "--topics", "a")
}

func TestLedgerUsage(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	all := []string{"--bootstrap", "127.0.0.1:1", "--group", "g"}
	with := func(args ...string) []string { return append(slices.Clone(all), args...) }
	for says, args := range map[string][]string{
		`unknown command "nonsense"`:     {"nonsense"},
		"--bootstrap is missing":         {"status", "--group", "g"},
		"--group is missing":             {"status", "--bootstrap", "x:1"},
		"--topics is missing":            append([]string{"check"}, all...),
		"topics: an empty name":          append([]string{"create"}, with("--topics", "a,")...),
		"--timeout -1s: want more":       append([]string{"status"}, with("--timeout", "-1s")...),
		`unexpected ["x"]`:               append([]string{"status"}, with("x")...),
		"not defined: -topics":           append([]string{"status"}, with("--topics", "a")...),
		"--replication-factor -1":        append([]string{"create"}, with("--topics", "a", "--replication-factor", "-1")...),
		`--to "": want earliest, latest`: append([]string{"reset"}, all...),
		`--to "soon": want earliest`:     append([]string{"reset"}, with("--to", "soon")...),
		`to: "" is no guarantee`:         append([]string{"move"}, all...),
		"it has not come yet":            append([]string{"reset"}, with("--to", "2999-01-01T00:00:00Z")...),
		"use another group":              {"status", "--bootstrap", "127.0.0.1:1", "--group", "a b"},
		"TransactionTimeout: -1s":        append([]string{"check"}, with("--topics", "a", "--transaction-timeout", "-1s")...),
	} {
		var out, errs bytes.Buffer
		if code := run(ctx, append([]string{"ledger"}, args...), nil, &out, &errs, &left); code != exitUsage || out.Len() > 0 || !strings.Contains(errs.String(), says) || strings.Contains(errs.String(), ": sharetxn: ") {
			t.Errorf("%q: exit status %d, stdout %q, stderr %q", args, code, out.String(), errs.String())
		}
	}
	names := make(map[string]bool)
	for _, c := range ledgerCommands {
		var out bytes.Buffer
		if code := run(ctx, []string{"ledger", c.name, "-h"}, nil, &out, &out, &left); code != exitOK || !strings.Contains(out.String(), "usage: sharetxn ledger "+c.name) || !strings.Contains(out.String(), c.about) {
			t.Errorf("%s -h: exit status %d, %q", c.name, code, out.String())
		}
		names[c.name] = true
	}
	for _, args := range [][]string{{"ledger"}, {"ledger", "help"}, {"ledger", "-h"}} {
		var out, errs bytes.Buffer
		if code := run(ctx, args, nil, &out, &errs, &left); code != exitOK || errs.Len() > 0 {
			t.Errorf("%q: exit status %d, %q", args, code, errs.String())
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if !strings.Contains(out.String(), "\n  "+name) {
				t.Errorf("%q: %s is not in %q", args, name, out.String())
			}
		}
	}
}
