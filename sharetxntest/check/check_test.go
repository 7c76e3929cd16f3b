package check

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// example is a history that a person wrote. Comments in it say what must be found:
// "# want: " a finding, "# conceded: " one that is conceded.
type example struct {
	*History
	want, conceded []string
}

func load(t *testing.T, file string) example {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	h, err := ReadHistory(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	e := example{History: h}
	for line := range strings.Lines(string(text)) {
		if w, ok := strings.CutPrefix(line, "# want: "); ok {
			e.want = append(e.want, strings.TrimSpace(w))
		}
		if w, ok := strings.CutPrefix(line, "# conceded: "); ok {
			e.conceded = append(e.conceded, strings.TrimSpace(w))
		}
	}
	return e
}

// found sorts a report's findings as the comments do.
func found(r Report) (wrong, conceded []string) {
	for _, f := range r.Findings {
		if f.Conceded {
			conceded = append(conceded, f.String())
		} else {
			wrong = append(wrong, f.String())
		}
	}
	return wrong, conceded
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// Each bad history is rejected for what its comments say and for nothing else, and
// its neighbour of the same name, in which one thing is different, is accepted.
func TestExamples(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	bad, err := filepath.Glob("testdata/bad/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	rules := make(map[string]int)
	for _, file := range bad {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			e := load(t, file)
			if len(e.want) == 0 {
				t.Fatal("it does not say what is wrong")
			}
			wrong, conceded := found(Judge(e.History))
			same(t, "found", wrong, e.want)
			same(t, "conceded", conceded, e.conceded)
			for _, w := range e.want {
				rules[w[:2]]++
			}
			e = load(t, "testdata/good/"+name)
			report := Judge(e.History)
			wrong, conceded = found(report)
			same(t, "in the neighbour", wrong, nil)
			same(t, "conceded in the neighbour", conceded, e.conceded)
			if rule := Rule(strings.ToUpper(name[:2])); report.Unjudged[rule] != "" {
				t.Errorf("the neighbour was not judged by %s: %s", rule, report.Unjudged[rule])
			}
			if report.Acknowledged == 0 {
				t.Error("nothing is done in the neighbour")
			}
		})
	}
	for _, r := range Rules() {
		if rules[string(r)] == 0 {
			t.Errorf("no history breaks rule %s", r)
		}
	}
}

// What is read is written as it was, but for comments.
func TestReadWrite(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	files, err := filepath.Glob("testdata/*/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	seen := make(map[string]bool)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		e := load(t, file)
		for _, l := range e.Lines {
			seen[eventName(l.Event)] = true
		}
		var out bytes.Buffer
		if err := e.Write(&out); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if got, want := out.String(), uncommented(text); got != want {
			t.Errorf("%s: written\n%s\nwant\n%s", file, got, want)
		}
	}
	for name := range types {
		if !seen[name] && name != "unstaged" && name != "forgotten" {
			t.Errorf("no example has event %s", name)
		}
	}
}

func uncommented(text []byte) string {
	var out strings.Builder
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "#") {
			out.WriteString(lines.Text() + "\n")
		}
	}
	return out.String()
}
