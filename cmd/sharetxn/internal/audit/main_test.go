package audit

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// The audit is independent of what it judges: of this module it has nothing but
// the transform.
func TestImports(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	out, err := exec.CommandContext(ctx, "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const (
		module = "github.com/sharetxn/sharetxn"
		self   = module + "/cmd/sharetxn/internal/audit"
		quake  = module + "/cmd/sharetxn/internal/quake"
	)
	var seen int
	for dep := range strings.FieldsSeq(string(out)) {
		switch {
		case dep == self || dep == quake:
			seen++
		case strings.HasPrefix(dep, module):
			t.Errorf("the audit depends on %s", dep)
		}
	}
	if seen != 2 {
		t.Errorf("the list is not the audit's: %s", out)
	}
}
