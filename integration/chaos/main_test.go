package chaos

import (
	"os"
	"testing"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// The test binary is also the processes of members.
func TestMain(m *testing.M) {
	if text := os.Getenv(jobEnv); text != "" {
		os.Exit(child(text))
	}
	testkit.Main(m)
}
