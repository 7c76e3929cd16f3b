// Package conformance is one list of cases, each a small program of client calls
// with the results that Kafka gives, run on real Kafka and on the embedded
// broker. Where the two differ for a reason, the case says so and asserts both.
package conformance

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// Case is one program. Its name is "area/what".
type Case struct {
	Name    string
	Brokers int           // what it needs, 1 or 3; 0 is 1
	Alone   bool          // it disturbs its cluster: no other case beside it
	Limit   time.Duration // its own deadline; 0 is a minute
	Run     func(ctx context.Context, x *X)
}

// All is the list.
func All() []Case {
	return slices.Concat(
		longest,
		membership, sessions, fetch, parked, leaders,
		acknowledge,
		renewal,
		counts,
		locks,
		offsets,
		groupConfigs,
		admin,
		transactions,
		markers, lostMarkers,
		found,
	)
}

// beside is how many cases use a cluster at a time: they wait for locks and
// assignments most of the time.
const beside = 16

// Run runs every case on targets of as many brokers as it needs, at once, since
// clusters of several take their time to start and to lose brokers. On each,
// cases that disturb it come after the others. It prints how many there were.
func Run(t *testing.T, open func(t *testing.T, brokers int) Target) {
	cases := All()
	check(t, cases)
	var ran, differing tally
	var due atomic.Int32 // without those of a cluster that cannot be had, which says so itself
	t.Cleanup(func() {   // when all have ended
		t.Logf("conformance: %d of %d cases executed, %d differences listed", ran.len(), len(cases), differing.len())
		if focused := strings.Contains(runFlag(), "/"); ran.len() != int(due.Load()) && !focused {
			t.Errorf("%d cases executed, %d were due", ran.len(), due.Load())
		}
		for _, line := range differing.sorted() {
			t.Log("differs: " + line)
		}
	})
	for _, brokers := range []int{1, 3} {
		of := slices.DeleteFunc(slices.Clone(cases), func(c Case) bool { return max(1, c.Brokers) != brokers })
		if len(of) == 0 {
			continue
		}
		t.Run(fmt.Sprintf("brokers=%d", brokers), func(t *testing.T) {
			t.Parallel()
			target := open(t, brokers)
			due.Add(int32(len(of)))
			Warm(t, target)
			free := make(chan struct{}, beside)
			t.Run("beside", func(t *testing.T) { // ends when all of them have
				for _, c := range of {
					if !c.Alone {
						t.Run(c.Name, func(t *testing.T) {
							t.Parallel()
							free <- struct{}{}
							defer func() { <-free }()
							c.run(t, target, &ran, &differing)
						})
					}
				}
			})
			for _, c := range of {
				if c.Alone {
					t.Run(c.Name, func(t *testing.T) { c.run(t, target, &ran, &differing) })
				}
			}
		})
	}
}

// check finds mistakes in the list itself.
func check(t *testing.T, cases []Case) {
	t.Helper()
	names := make(map[string]bool)
	for _, c := range cases {
		area, what, ok := strings.Cut(c.Name, "/")
		if !ok || area == "" || what == "" || names[c.Name] || (c.Brokers != 0 && c.Brokers != 1 && c.Brokers != 3) {
			t.Fatalf("the list has a bad entry: %q, %d brokers", c.Name, c.Brokers)
		}
		names[c.Name] = true
	}
}

func (c Case) run(t *testing.T, target Target, ran, differing *tally) {
	limit := c.Limit
	if limit == 0 {
		limit = time.Minute
	}
	ctx := testkit.Deadline(t, limit)
	ran.add(c.Name)
	c.Run(ctx, newX(t, target, c.Name, differing))
}

// tally is a set of lines.
type tally struct {
	mu   sync.Mutex
	have map[string]bool
}

func (l *tally) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.have == nil {
		l.have = make(map[string]bool)
	}
	l.have[line] = true
}

func (l *tally) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.have)
}

func (l *tally) sorted() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for line := range l.have {
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// Same fails the case unless got is want.
func (x *X) Same(what string, got, want any) {
	x.Helper()
	if !reflect.DeepEqual(got, want) {
		x.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// Differs is Same with an answer of its own for the embedded broker, and the
// reason, which is listed at the end.
func (x *X) Differs(what, reason string, got, kafka, embedded any) {
	x.Helper()
	if reflect.DeepEqual(kafka, embedded) {
		x.Fatalf("%s: the case lists a difference and none is expected", what)
	}
	x.differing.add(x.name + ": " + what + ": " + reason)
	if x.Target.Embedded() {
		x.Same(what, got, embedded)
		return
	}
	x.Same(what, got, kafka)
}
