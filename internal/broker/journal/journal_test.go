package journal

import (
	"errors"
	"fmt"
	"io"
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

func open(t *testing.T, path string) *Journal {
	t.Helper()
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func flush(t *testing.T, j *Journal) {
	t.Helper()
	if err := j.Flush(); err != nil {
		t.Fatal(err)
	}
}

// holds checks the values, each a letter.
func holds(t *testing.T, j *Journal, want string) {
	t.Helper()
	var got []string
	for k, v := range j.All() {
		got = append(got, k+string(v))
	}
	slices.Sort(got)
	if all := strings.Join(got, " "); all != want {
		t.Errorf("holds %q, want %q", all, want)
	}
}

// written makes a journal's file: a1 b2 a3, c4, b gone.
func written(t *testing.T) (path string, raw []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "state")
	j := open(t, path)
	for _, kv := range []string{"a1", "b2", "a3", "c4"} {
		j.Put(kv[:1], []byte(kv[1:]))
	}
	j.Delete("b")
	flush(t, j)
	raw, err := os.ReadFile(path) // while it is open: what a kill leaves
	if err != nil {
		t.Fatal(err)
	}
	return path, raw
}

// What was flushed is there for the next process, and what it adds after that.
func TestReopen(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	_, raw := written(t)
	path := filepath.Join(t.TempDir(), "again")
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	j := open(t, path)
	holds(t, j, "a3 c4")
	if v, ok := j.Get("a"); !ok || string(v) != "3" {
		t.Errorf("a is %q, %v", v, ok)
	}
	if _, ok := j.Get("b"); ok {
		t.Error("b is there")
	}
	j.Put("d", []byte("5"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	j.Put("e", []byte("6"))
	if err := j.Flush(); !errors.Is(err, errClosed) {
		t.Errorf("flushed after the end: %v", err)
	}
	holds(t, open(t, path), "a3 c4 d5")
}

// What says nothing new is not written.
func TestPutSame(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	path, raw := written(t)
	j := open(t, filepath.Join(t.TempDir(), "other"))
	j.Put("a", nil) // an empty value is one
	j.Put("a", []byte{})
	j.Delete("never there")
	flush(t, j)
	if j.changes != 1 {
		t.Errorf("%d changes", j.changes)
	}
	if again, err := os.ReadFile(path); err != nil || len(again) != len(raw) {
		t.Errorf("%d bytes, %v", len(again), err)
	}
}

// A file that ends anywhere is whole up to its last whole change, and can be
// added to.
func TestTorn(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	_, raw := written(t)
	want := []string{"", "a1", "a1 b2", "a3 b2", "a3 b2 c4", "a3 c4"}
	var ends []int // of whole changes
	for at := len(magic); at <= len(raw); {
		ends = append(ends, at)
		if at == len(raw) {
			break
		}
		at += headSize + int(raw[at])
	}
	if len(ends) != len(want) {
		t.Fatalf("changes end at %v", ends)
	}
	for cut := range len(raw) + 1 {
		path := filepath.Join(t.TempDir(), "torn")
		if err := os.WriteFile(path, raw[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		n := 0
		for n+1 < len(ends) && ends[n+1] <= cut {
			n++
		}
		j := open(t, path)
		holds(t, j, want[n])
		j.Put("z", []byte("9"))
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		again := open(t, path)
		holds(t, again, strings.TrimSpace(want[n]+" z9"))
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A file in which any bit was changed is refused, with its name, and left as it
// is.
func TestCorrupt(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	_, raw := written(t)
	path := filepath.Join(t.TempDir(), "state")
	for at := range raw {
		bad := slices.Clone(raw)
		bad[at] ^= 1 << (at % 8)
		if err := os.WriteFile(path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		j, err := Open(path)
		if err == nil {
			_ = j.Close()
		}
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) {
			t.Errorf("byte %d: %v", at, err)
		}
		if left, err := os.ReadFile(path); err != nil || string(left) != string(bad) {
			t.Errorf("byte %d: the file was changed (%v)", at, err)
		}
	}
	for name, text := range map[string]string{"another file": "something else altogether", "another version": "sharetxn journal 2\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Many write at once; the file stays as small as what it says allows.
func TestCompacts(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	path := filepath.Join(t.TempDir(), "state")
	j := open(t, path)
	value := make([]byte, 1000)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 1000 {
				key := fmt.Sprint(w, i%10)
				j.Put(key, fmt.Appendf(slices.Clone(value), "%d", i))
				if i%3 == 0 {
					j.Delete(fmt.Sprint(w, (i+5)%10))
				}
				if err := j.Flush(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	info, err := os.Stat(path)
	if err != nil || info.Size() > compactAt+100_000 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	want := j.All()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(t.TempDir(), "killed")
	if err := os.WriteFile(killed, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := open(t, killed).All(); !maps.EqualFunc(got, want, slices.Equal) || len(want) == 0 {
		t.Errorf("%d values of %d came back as they were", len(got), len(want))
	}
}

// Once a write has failed nothing is answered for any more.
func TestWriteFails(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	j := open(t, filepath.Join(t.TempDir(), "state"))
	j.Put("a", []byte("1"))
	flush(t, j)
	if err := j.file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Flush(); err != nil {
		t.Errorf("nothing was to be written: %v", err)
	}
	j.Put("a", []byte("2"))
	for range 2 {
		if err := j.Flush(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("flushed: %v", err)
		}
	}
	if err := j.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestOpenFails(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	dir := t.TempDir()
	if _, err := Open(dir); err == nil {
		t.Error("a folder was opened")
	}
}

// One at a time has the folder, and the next once that one is gone.
func TestLock(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	dir := filepath.Join(t.TempDir(), "new")
	first, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(dir); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("twice: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = next.Close()
	if _, err := Lock(filepath.Join(dir, "lock")); err == nil {
		t.Error("a file was taken for a folder")
	}
}

// Who adds to the file in its place decides what is in it: what was left half done is
// not there for the next process, and what was whole before is.
func TestOnWrite(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	path := filepath.Join(t.TempDir(), "state")
	j := open(t, path)
	j.Put("a", []byte("1"))
	flush(t, j)
	torn := errors.New("torn")
	j.OnWrite(func(file io.Writer, changes []byte) (int, error) {
		n, err := file.Write(changes[:len(changes)/2])
		return n, errors.Join(err, torn)
	})
	j.Put("b", []byte("2"))
	if err := j.Flush(); !errors.Is(err, torn) {
		t.Errorf("flush: %v", err)
	}
	if err := j.Close(); !errors.Is(err, torn) {
		t.Errorf("close: %v", err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, open(t, path), "a1")
	if now, err := os.Stat(path); err != nil || now.Size() >= int64(len(raw)) {
		t.Errorf("nothing was cut off: %v, %v", now, err)
	}
}
