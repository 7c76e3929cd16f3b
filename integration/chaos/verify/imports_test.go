package verify

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// The verifier must not share a mistake with what it judges: of the module it
// needs its own task and nothing else.
func TestIndependent(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	const module = "github.com/sharetxn/sharetxn"
	out, err := exec.CommandContext(ctx, "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{module + "/integration/chaos/verify": true, module + "/integration/chaos/task": true}
	seen := 0
	for dep := range strings.Lines(string(out)) {
		dep = strings.TrimSpace(dep)
		switch {
		case own[dep]:
			seen++
		case strings.HasPrefix(dep, module):
			t.Errorf("needs %s", dep)
		}
	}
	if seen != len(own) {
		t.Errorf("go list tells of %d of %d packages:\n%s", seen, len(own), out)
	}
}
