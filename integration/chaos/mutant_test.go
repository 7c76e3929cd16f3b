package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// mutation changes the library's source in one place, for a program of its own:
// what is shipped has no switch for it.
type mutation struct {
	file     string // from the module's folder
	old, new string
}

// releaseOnConflict gives back what waits for a transaction that is not decided.
var releaseOnConflict = []mutation{
	{"processor/ledger.go", "if m.stopping && !m.history(it).last() {", "if true {"},
}

// noGapRule takes a ledger for whole of which a part was not read, and looks at no
// start of a share partition.
var noGapRule = []mutation{
	{"internal/ledger/index/decide.go", "return !x.gapped || s != nil && s.asOf >= x.resumed && x.next >= s.end && x.written >= 0", "return true"},
	{"internal/ledger/index/index.go", "if start > s.floor {", "if start > s.floor && s.floor < -1 {"},
}

// build makes the test's own program with the mutations, and leaves it in dir.
func build(ctx context.Context, dir string, mutations []mutation) (program string, err error) {
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	for i, m := range mutations {
		file, err := filepath.Abs(filepath.Join("..", "..", filepath.FromSlash(m.file)))
		if err != nil {
			return "", err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if n := strings.Count(string(text), m.old); n != 1 {
			return "", fmt.Errorf("%s has %q %d times: the mutation does not fit any more", m.file, m.old, n)
		}
		mutated := filepath.Join(dir, fmt.Sprintf("mutated-%d.go", i))
		if err := os.WriteFile(mutated, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o644); err != nil {
			return "", err
		}
		overlay.Replace[file] = mutated
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o644); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "mutant")
	args := []string{"test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program}
	if raced() { // everything else is compiled already
		args = append(args, "-race")
	}
	if out, err := exec.CommandContext(ctx, "go", append(args, ".")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the mutant: %w\n%s", err, out)
	}
	return program, nil
}

// raced tells whether this program was built with the race detector.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}
