package sharetxntest

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// verdict runs fn as a test of its own and gives what it failed and logged with:
// how the kit tells a user is tested here too.
func verdict(t *testing.T, fn func(t testing.TB)) (failed, logged []string) {
	t.Helper()
	r := &recorder{TB: t, out: t.Output()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		fn(r)
	}()
	<-done
	return r.failed, r.logged
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	out            io.Writer // what Output is
	mu             sync.Mutex
	cleanups       []func()
	failed, logged []string
}

func (r *recorder) note(to *[]string, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*to = append(*to, text)
}

func (r *recorder) Output() io.Writer            { return r.out }
func (r *recorder) Helper()                      {}
func (r *recorder) Cleanup(f func())             { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Logf(s string, args ...any)   { r.note(&r.logged, fmt.Sprintf(s, args...)) }
func (r *recorder) Errorf(s string, args ...any) { r.note(&r.failed, fmt.Sprintf(s, args...)) }
func (r *recorder) Fatalf(s string, args ...any) {
	r.Errorf(s, args...)
	runtime.Goexit()
}
func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// wantText holds texts against pieces of them, one for each, in order.
func wantText(t *testing.T, what string, got []string, pieces ...string) {
	t.Helper()
	ok := len(got) == len(pieces)
	for i := 0; ok && i < len(got); i++ {
		ok = strings.Contains(got[i], pieces[i])
	}
	if !ok {
		t.Errorf("%s: got\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(pieces, "\n\t"))
	}
}
