package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

const root = "../.."

// Each mistake of the list can be made in the sources as they are, and those that
// do not touch each other build together. That a test finds each is for
// `make mutants`.
func TestListFits(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Minute)
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	var fit []Mutant
	packages := []string{"test"}
	for _, m := range all {
		if _, err := Overlay(here, t.TempDir(), m); err != nil {
			t.Error(err)
			continue
		}
		fit = append(fit, m)
		if dir := "./" + filepath.Dir(m.File); !slices.Contains(packages, dir) {
			packages = append(packages, dir)
		}
	}
	for round := 0; len(fit) > 0; round++ {
		var together, later []Mutant
		for _, m := range fit {
			if _, err := Overlay(here, t.TempDir(), append(slices.Clone(together), m)...); err != nil {
				later = append(later, m)
				continue
			}
			together = append(together, m)
		}
		if round == len(all) {
			t.Fatalf("%d mutants fit nowhere", len(fit))
		}
		overlay, err := Overlay(here, t.TempDir(), together...)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-overlay", overlay}, packages[1:]...)...)
		cmd.Dir = here
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		fit = later
	}
	for s := range Suites(all) {
		if _, err := os.Stat(filepath.Join(here, s.Package)); err != nil {
			t.Error(err)
		}
	}
}

func TestParse(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const good = "# what\n== a\nwhy: x\nwhy: y\nfile: f.go\ntest: ./p TestA|TestB\ntags: x,y\n- \told\n-\n+ \tnew\n"
	all, err := Parse(good)
	if err != nil {
		t.Fatal(err)
	}
	want := Mutant{Name: "a", Why: "x y", File: "f.go", Old: "\told\n\n", New: "\tnew\n", Package: "./p", Run: "TestA|TestB", Tags: "x,y"}
	if len(all) != 1 || all[0] != want {
		t.Errorf("%+v, want %+v", all, want)
	}
	for text, wrong := range map[string]string{
		good + good:                          "line 12: a second mutant \"a\"",
		"why: x\n":                           "line 1: it belongs to no mutant",
		"== a\nold\n":                        "line 2: \"old\" begins with no field",
		"== a\nwhy: x\nfile: f\ntest: p R\n": "mutant \"a\": why, file, test and old lines are needed",
	} {
		if _, err := Parse(text); err == nil || !strings.HasPrefix(err.Error(), wrong) {
			t.Errorf("%q: %v, want %s", text, err, wrong)
		}
	}
}

func TestApply(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	m := Mutant{Name: "a", File: "f.go", Old: "b\n", New: "x\ny\n"}
	for text, want := range map[string]string{"a\nb\nc\n": "a\nx\ny\nc\n", "b\n": "x\ny\n"} {
		if got, err := m.Apply(text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for text, times := range map[string]string{"": "0 times", "ab\n": "0 times", "b\nc\nb\n": "2 times"} {
		if _, err := m.Apply(text); err == nil || !strings.Contains(err.Error(), times) {
			t.Errorf("%q: %v, want %s", text, err, times)
		}
	}
}
