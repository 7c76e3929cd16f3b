package house

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// layers are DESIGN.md's map from the ground up. A folder may import what lies
// in a layer below its own, and its own folders.
var layers = [][]string{
	{"internal/lapse"},
	{"acks", "groupmeta", "internal/kopts", "examples/data", "internal/brokers", "internal/ledger/entry", "sharetxntest/check"},
	{"internal/bind", "internal/wire", "internal/brokerconfig", "internal/ledger/index", "internal/ledger/rules"},
	{"internal/probe"},
	{"internal/core"},
	{"."},
	{"groupconfig", "internal/preflight", "internal/ledger/topic"},
	{"shareconsumer", "txnmanager", "internal/ledger/tail"},
	{"producer", "ledger"},
	{"acknowledger", "processor"},
	{"sharetxntest"},
	{"cmd", "examples", "scripts", "simulation", "integration"},
	{"bench"},
}

// beside are folders in no service's binary: what they may import ends below the
// layer named, and only programs and the test kit may import them.
var beside = map[string]int{
	"internal/broker":  3,
	"internal/testkit": 0,
	"internal/house":   0,
	"internal/mutants": 0,
}

var importRules = []rule{
	{name: "imports point downwards", find: upward, examples: []example{
		{name: "down", files: map[string]string{
			"producer/a.go":                         `package producer; import _ "` + module + `/txnmanager"`,
			"a.go":                                  `package sharetxn; import _ "` + module + `/internal/core"`,
			"internal/broker/b.go":                  `package broker; import _ "` + module + `/internal/broker/share"`,
			"internal/broker/share/s.go":            `package share; import _ "` + module + `/acks"`,
			"cmd/sharetxn/main.go":                  `package main; import _ "` + module + `/internal/broker"`,
			"shareconsumer/a_test.go":               `package shareconsumer; import _ "` + module + `/internal/broker"`,
			"integration/kafka/internal/proxy/p.go": `package proxy; import _ "net"`,
		}},
		{name: "up", files: map[string]string{
			"acks/a.go":              `package acks; import _ "` + module + `"`,
			"internal/core/c.go":     `package core; import _ "` + module + `/producer"`,
			"internal/broker/b.go":   `package broker; import _ "` + module + `/internal/core"`,
			"internal/testkit/t.go":  `package testkit; import _ "` + module + `/acks"`,
			"internal/broker/x/x.go": `package x; import _ "` + module + `/producer"`,
		}, want: []string{
			"acks/a.go:1: acks imports the root package, which is not below it",
			"internal/broker/b.go:1: internal/broker imports internal/core, which is not below it",
			"internal/broker/x/x.go:1: internal/broker/x imports producer, which is not below it",
			"internal/core/c.go:1: internal/core imports producer, which is not below it",
			"internal/testkit/t.go:1: internal/testkit imports acks, which is not below it",
		}},
		{name: "sideways", files: map[string]string{
			"shareconsumer/a.go": `package shareconsumer; import _ "` + module + `/txnmanager"`,
			"producer/a.go":      `package producer; import _ "` + module + `/internal/broker/share"`,
		}, want: []string{
			"producer/a.go:1: producer imports internal/broker/share, which is not below it",
			"shareconsumer/a.go:1: shareconsumer imports txnmanager, which is not below it",
		}},
		{name: "in no layer", files: map[string]string{
			"internal/util/u.go": "package util",
		}, want: []string{"internal/util/u.go:1: internal/util is in no layer; give it a place in DESIGN.md's map and here"}},
	}},
}

// place tells in which layer a folder is, from below and from above: what it may
// import ends below sees, and it may be imported from above seen.
func place(dir string) (folder string, sees, seen int, ok bool) {
	for d := dir; ; d = path.Dir(d) {
		if sees, ok := beside[d]; ok {
			return d, sees, len(layers) - 4, true
		}
		for i, folders := range layers {
			if slices.Contains(folders, d) && (d != "." || dir == ".") {
				return d, i, i, true
			}
		}
		if d == "." {
			return "", 0, 0, false
		}
	}
}

// upward finds imports between the module's own folders that do not point down.
// Test files are free: they may look at anything.
func upward(t *tree) (found []offence) {
	for _, s := range t.sources {
		if s.test() {
			continue
		}
		folder, sees, _, ok := place(s.dir())
		if !ok {
			found = append(found, t.at(s, s.Package, "%s is in no layer; give it a place in DESIGN.md's map and here", s.dir()))
			continue
		}
		for imported, pos := range s.imports() {
			below, ours := strings.CutPrefix(imported, module)
			if !ours {
				continue
			}
			dir, name := path.Clean("."+below), strings.TrimPrefix(below, "/")
			if below == "" {
				name = "the root package"
			}
			if target, _, seen, ok := place(dir); !ok || target != folder && seen >= sees {
				found = append(found, t.at(s, pos, "%s imports %s, which is not below it", s.dir(), name))
			}
		}
	}
	return found
}

// service are the packages that a service imports.
var service = []string{".", "./acks", "./groupmeta", "./producer", "./shareconsumer", "./txnmanager"}

// unwelcome is what a service's binary may not carry, and why.
var unwelcome = map[string]string{
	"github.com/twmb/franz-go/pkg/kfake":    "a broker",
	module + "/internal/broker":             "a broker",
	"testing":                               "test code",
	module + "/internal/testkit":            "test code",
	"go.uber.org/goleak":                    "test code",
	"pgregory.net/rapid":                    "test code",
	"github.com/testcontainers":             "test code",
	"github.com/prometheus":                 "an exporter the service did not choose",
	"go.opentelemetry.io":                   "an exporter the service did not choose",
	"github.com/twmb/franz-go/plugin/kprom": "an exporter the service did not choose",
	"github.com/twmb/franz-go/plugin/kotel": "an exporter the service did not choose",
}

func TestServiceCarriesNoTestCode(t *testing.T) {
	ctx := testkit.Deadline(t, 2*time.Minute)
	if got := carried(deps(ctx, t, service...)); len(got) > 0 {
		t.Errorf("a service would carry %q", got)
	}
	// The same look at the embedded broker finds what it must.
	got := carried(deps(ctx, t, "./internal/broker"))
	for _, want := range []string{"github.com/twmb/franz-go/pkg/kfake (a broker)", module + "/internal/broker (a broker)"} {
		if !slices.Contains(got, want) {
			t.Errorf("internal/broker carries %q, and %q is not seen", got, want)
		}
	}
}

func TestCarried(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	got := carried([]string{
		"fmt", "testing", "testing/iotest", "testingx", module, module + "/internal/brokerless",
		"github.com/prometheus/client_golang/prometheus", "go.opentelemetry.io/otel", "github.com/testcontainers/testcontainers-go",
	})
	want := []string{
		"testing (test code)", "testing/iotest (test code)",
		"github.com/prometheus/client_golang/prometheus (an exporter the service did not choose)",
		"go.opentelemetry.io/otel (an exporter the service did not choose)",
		"github.com/testcontainers/testcontainers-go (test code)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// required are the modules that the main module may name: whoever uses the
// library has them in their module graph. What only tests on real Kafka or
// measurements need is required by the nested modules.
var required = []string{
	"github.com/twmb/franz-go", "github.com/twmb/franz-go/pkg/kadm", "github.com/twmb/franz-go/pkg/kfake",
	"github.com/twmb/franz-go/pkg/kmsg", "github.com/twmb/franz-go/plugin/kslog",
	"github.com/klauspost/compress", "github.com/pierrec/lz4/v4", "golang.org/x/crypto",
	"go.uber.org/goleak", "pgregory.net/rapid",
}

func TestMainModuleRequiresLittle(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for file, welcome := range map[string]bool{"go.mod": true, "integration/go.mod": false} {
		text, err := os.ReadFile(path.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		got := beyond(requires(string(text)))
		if welcome && len(got) > 0 {
			t.Errorf("%s requires %q; every user would: give it a reason in DESIGN.md and here", file, got)
		}
		// The same look at integration finds what it must.
		if !welcome && !slices.Contains(got, "github.com/testcontainers/testcontainers-go") {
			t.Errorf("%s: found %q", file, got)
		}
	}
}

// requires lists the modules that a go.mod requires.
func requires(text string) (modules []string) {
	inside := false
	for line := range strings.Lines(text) {
		switch f := strings.Fields(line); {
		case len(f) == 2 && f[0] == "require" && f[1] == "(":
			inside = true
		case len(f) == 1 && f[0] == ")":
			inside = false
		case len(f) > 2 && f[0] == "require":
			modules = append(modules, f[1])
		case inside && len(f) > 1:
			modules = append(modules, f[0])
		}
	}
	return modules
}

func beyond(modules []string) []string {
	return slices.DeleteFunc(modules, func(m string) bool { return slices.Contains(required, m) })
}

// carried picks what is unwelcome from import paths.
func carried(paths []string) (found []string) {
	for _, p := range paths {
		for bad, why := range unwelcome {
			if p == bad || strings.HasPrefix(p, bad+"/") {
				found = append(found, p+" ("+why+")")
			}
		}
	}
	return found
}

// deps lists all that the packages import, themselves included, tests left out.
func deps(ctx context.Context, t *testing.T, packages ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps"}, packages...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}
