package check

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// What is checked must not share a mistake with its checker, which needs the
// standard library and nothing else: no client, no broker, no wire.
func TestIndependent(t *testing.T) {
	ctx := testkit.Deadline(t, 2*time.Minute)
	const own = "github.com/sharetxn/sharetxn/sharetxntest/check"
	out, err := exec.CommandContext(ctx, "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := false
	for dep := range strings.Lines(string(out)) {
		dep = strings.TrimSpace(dep)
		seen = seen || dep == own
		if strings.Contains(dep, ".") && dep != own && !strings.HasPrefix(dep, "vendor/") {
			t.Errorf("needs %s", dep)
		}
	}
	if !seen {
		t.Errorf("go list does not tell of the package itself:\n%s", out)
	}
}
