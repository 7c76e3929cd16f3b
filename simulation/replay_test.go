package simulation

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

var (
	opsFile = flag.String("ops", "", "a script that TestReplay runs in place of those in testdata")
	times   = flag.Int("times", 3, "how often TestReplay runs a script, unless it fails before")
	reduce  = flag.Bool("reduce", false, "shorten the script of -ops while it fails, and write that beside it")
)

// Scripts that failed once, or that say what must not fail, run as they are.
func TestReplay(t *testing.T) {
	need(t)
	files := []string{*opsFile}
	if *opsFile == "" {
		var err error
		if files, err = filepath.Glob("testdata/*.ops"); err != nil || len(files) == 0 {
			t.Fatalf("no scripts in testdata: %v", err)
		}
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".ops")
		t.Run(name, func(t *testing.T) {
			testkit.Deadline(t, time.Duration(*times)*perSeed)
			s := read(t, file)
			r := often(t, s)
			if r.Wrong == nil {
				if *opsFile != "" {
					t.Logf("nothing is wrong:\n%s", strings.Join(r.Journal[max(0, len(r.Journal)-*tail):], "\n"))
				}
				return
			}
			tell(t, s, r, name)
			if *reduce {
				shorten(t, s, rule(r.Wrong[0]), file)
			}
		})
	}
}

func read(t *testing.T, file string) Script {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	s, err := Parse(f)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return s
}

// often runs a script until something is wrong, but not for ever: the scheduler
// has a part in it.
func often(t *testing.T, s Script) (r Result) {
	t.Helper()
	for range *times {
		if r = Run(t, s); r.Wrong != nil {
			return r
		}
	}
	return r
}

// shorten writes what is left of a script that still breaks the same rule.
func shorten(t *testing.T, s Script, broken, file string) {
	t.Helper()
	tries := 0
	s.Ops = Reduce(s.Ops, func(ops []Op) bool {
		tries++
		r := often(t, Script{s.Setup, ops})
		return r.Wrong != nil && rule(r.Wrong[0]) == broken
	})
	short := file + ".short"
	if err := os.WriteFile(short, []byte(s.String()), 0o600); err != nil {
		t.Error(err)
	}
	t.Logf("%d operations still fail, after %d candidates: %s\n%s", len(s.Ops), tries, short, s)
}
