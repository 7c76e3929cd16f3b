// Package mutants lists mistakes that a suite of this module must find: one for
// each guard that keeps a record from being lost or published twice. list.txt is
// the list, for people; scripts/mutants builds each mistake as an overlay of the
// sources (go test -overlay), so that production has no switches, and runs the
// test that must fail.
package mutants

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed list.txt
var list string

// Mutant is one mistake: in File, a path from the module's root, Old stands once
// and New takes its place.
type Mutant struct {
	Name     string // unique
	Why      string // the guard is there
	File     string
	Old, New string
	Package  string // whose tests must fail, as ./producer
	Tags     string // build tags that these tests need
	Run      string // which: a regular expression for go test -run
}

// List is what list.txt says.
func List() ([]Mutant, error) { return Parse(list) }

// Parse reads a list. A mutant begins with "== " and its name; fields are lines
// "why: ", "file: ", "test: PACKAGE REGEXP", "tags: TAGS" if the tests need any; then come lines that begin with "- "
// (old) and "+ " (new), whole lines of the file: the dash or plus and the blank are
// not part of it. Other lines that are not empty must begin with "#".
func Parse(text string) ([]Mutant, error) {
	var all []Mutant
	seen := make(map[string]bool)
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "== "); ok {
			if seen[name] {
				return nil, fmt.Errorf("line %d: a second mutant %q", n, name)
			}
			seen[name] = true
			all = append(all, Mutant{Name: name})
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("line %d: it belongs to no mutant", n)
		}
		if err := all[len(all)-1].set(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	for _, m := range all {
		if m.Why == "" || m.File == "" || m.Old == "" || m.Package == "" || m.Run == "" {
			return nil, fmt.Errorf("mutant %q: why, file, test and old lines are needed", m.Name)
		}
	}
	return all, nil
}

func (m *Mutant) set(line string) error {
	key, value, _ := strings.Cut(line, " ")
	switch key {
	case "why:":
		m.Why = strings.TrimSpace(m.Why + " " + value)
	case "file:":
		m.File = value
	case "test:":
		m.Package, m.Run, _ = strings.Cut(value, " ")
	case "tags:":
		m.Tags = value
	case "-":
		m.Old += value + "\n"
	case "+":
		m.New += value + "\n"
	default:
		return fmt.Errorf("%q begins with no field", line)
	}
	return nil
}

// Apply makes the mistake in a file's text. An error says how often Old is there,
// if that is not once.
func (m Mutant) Apply(text string) (string, error) {
	if n := strings.Count("\n"+text, "\n"+m.Old); n != 1 {
		return "", fmt.Errorf("mutant %q: its old text stands %d times in %s, want once", m.Name, n, m.File)
	}
	return strings.Replace("\n"+text, "\n"+m.Old, "\n"+m.New, 1)[1:], nil
}

// Overlay writes the sources with mistakes into dir, and gives the file for go
// build's option -overlay. root is the module's folder.
func Overlay(root, dir string, mistakes ...Mutant) (string, error) {
	texts := make(map[string]string)
	for _, m := range mistakes {
		text, ok := texts[m.File]
		if !ok {
			raw, err := os.ReadFile(filepath.Join(root, m.File))
			if err != nil {
				return "", err
			}
			text = string(raw)
		}
		mutated, err := m.Apply(text)
		if err != nil {
			return "", err
		}
		texts[m.File] = mutated
	}
	replace := make(map[string]string)
	for file, text := range texts {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = to
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, raw, 0o600)
}

// Suite is a package's tests, as they are built.
type Suite struct{ Package, Tags string }

// Suite is where the tests are that must find the mutant.
func (m Mutant) Suite() Suite { return Suite{m.Package, m.Tags} }

// Suites are those whose tests the mutants name, each with a regular expression for
// all of these.
func Suites(all []Mutant) map[Suite]string {
	runs := make(map[Suite][]string)
	for _, m := range all {
		if s := m.Suite(); !slices.Contains(runs[s], m.Run) {
			runs[s] = append(runs[s], m.Run)
		}
	}
	out := make(map[Suite]string)
	for s, run := range runs {
		out[s] = strings.Join(run, "|")
	}
	return out
}
