package chaos

import (
	"flag"
	"os"
	"testing"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// The test binary is also the processes of members.
var seed = flag.Uint64("seed", 1, "`seed` of all that is random")

func TestMain(m *testing.M) {
	if text := os.Getenv(jobEnv); text != "" {
		os.Exit(child(text))
	}
	testkit.Main(m)
}
