package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/mutants"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// A mistake that a test finds is killed; what changes nothing lives, and so does
// what proves nothing: a mistake that does not build, or tests that are not there.
func TestKill(t *testing.T) {
	ctx := testkit.Deadline(t, 5*time.Minute)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	const old = "func (t Type) Known() bool { return t >= Gap && t <= Renew }\n"
	for name, tc := range map[string]struct{ by, run, killed, lives string }{
		"found":          {"func (t Type) Known() bool { return true }\n", "TestType", "--- FAIL: TestType", ""},
		"panics":         {"func (t Type) Known() bool { panic(t) }\n", "TestType", "--- FAIL: TestType", ""},
		"harmless":       {"func (t Type) Known() bool { return t <= Renew && t >= Gap }\n", "TestType", "", "-run TestType passes"},
		"does not build": {"func (t Type) Known() bool { return 7 }\n", "TestType", "", "it does not build"},
		"no such test":   {"func (t Type) Known() bool { return true }\n", "TestNothing", "", "no test says so"},
	} {
		t.Run(name, func(t *testing.T) {
			m := mutants.Mutant{Name: name, File: "acks/acks.go", Old: old, New: tc.by, Package: "./acks", Run: tc.run}
			how, err := kill(ctx, time.Minute, root, m)
			switch {
			case tc.killed != "" && (err != nil || !strings.HasPrefix(how, tc.killed)):
				t.Errorf("%q, %v", how, err)
			case tc.lives != "" && (err == nil || !strings.Contains(err.Error(), tc.lives)):
				t.Errorf("%q, %v", how, err)
			}
		})
	}
}
