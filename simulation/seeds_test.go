package simulation

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

var (
	seeds    = flag.Uint64("seeds", 60, "how many seeds TestSeeds runs")
	fromSeed = flag.Uint64("from-seed", 0, "the first of them")
	kind     = flag.String("kind", "", "of guarantee or profile: leave out seeds of others")
	form     = flag.String("form", "", "of processes: leave out seeds of others")
	rare     = flag.Int("rare", 0, "how often each rare state must be reached, for each guarantee and profile")
	tail     = flag.Int("tail", 60, "lines of a failed run's journal that are printed")
)

// need refuses to run where a run may hang.
func need(t *testing.T) {
	t.Helper()
	if !tagged {
		t.Fatal("simulations need the build tag: go test -tags synctests ./simulation")
	}
}

// perSeed is real time: a run takes a second, and on a busy machine many.
const perSeed = 5 * time.Minute

// Whatever a seed makes of a cluster and its processes: when everything has
// healed the group drains, and what it was promised holds.
func TestSeeds(t *testing.T) {
	need(t)
	testkit.Deadline(t, perSeed+time.Duration(*seeds)*30*time.Second)
	sum := &totals{by: make(map[string]map[Rare]int), runs: make(map[string]int)}
	t.Run("seed", func(t *testing.T) {
		for seed := *fromSeed; seed < *fromSeed+*seeds; seed++ {
			s := Generate(seed)
			if *kind != "" && *kind != s.Setup.kind() || *form != "" && *form != string(s.Setup.Form) {
				continue
			}
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				testkit.Deadline(t, perSeed+time.Duration(*seeds)*30*time.Second)
				r := Run(t, s)
				sum.add(s.Setup.kind(), r)
				if r.Wrong != nil {
					tell(t, s, r, fmt.Sprintf("seed-%d", seed))
				}
			})
		}
	})
	sum.print(t)
	sum.demand(t, *rare)
}

// totals are what all seeds reached.
type totals struct {
	mu   sync.Mutex
	by   map[string]map[Rare]int
	runs map[string]int
	took time.Duration
	fed  int
}

func (s *totals) add(kind string, r Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[kind] == nil {
		s.by[kind] = make(map[Rare]int)
	}
	for what, n := range r.Tally {
		s.by[kind][what] += n
	}
	s.runs[kind]++
	s.took, s.fed = s.took+r.Took, s.fed+len(r.Fed)
}

func (s *totals) print(t *testing.T) {
	t.Helper()
	t.Logf("%d records in %v of virtual time", s.fed, s.took.Round(time.Second))
	for _, kind := range slices.Sorted(maps.Keys(s.by)) {
		var b strings.Builder
		for _, what := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(occurs(kind), slices.Collect(maps.Keys(s.by[kind])))))) {
			fmt.Fprintf(&b, "; %s: %d", what, s.by[kind][what])
		}
		t.Logf("%s: %d runs%s", kind, s.runs[kind], b.String())
	}
}

func (s *totals) demand(t *testing.T, least int) {
	t.Helper()
	for kind, tally := range s.by {
		for _, what := range occurs(kind) {
			if tally[what] < least {
				t.Errorf("%s: %s was reached %d times, want %d: change the generator's weights", kind, what, tally[what], least)
			}
		}
	}
}

// tell fails the test with all that is needed to look into a run.
func tell(t *testing.T, s Script, r Result, name string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "simulation-") //nolint:usetesting // kept: what failed is to be replayed
	if err != nil {
		t.Error(err)
	}
	ops, story := filepath.Join(dir, name+".ops"), filepath.Join(dir, name+".journal")
	for path, text := range map[string]string{ops: s.String(), story: strings.Join(r.Journal, "\n")} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	last := r.Journal[max(0, len(r.Journal)-*tail):]
	t.Errorf("%s:\n\t%s\nscript, in %s:\n\t%s\nthe end of the journal, all of which is in %s:\n\t%s\nreplay:\n\tgo test -count=1 -tags synctests ./simulation -run '^TestReplay$' -ops %s",
		name, strings.Join(r.Wrong, "\n\t"), ops, strings.ReplaceAll(s.String(), "\n", "\n\t"), story, strings.Join(last, "\n\t"), ops)
}
