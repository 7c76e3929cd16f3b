package soak

import (
	"fmt"
	"os"
	"testing"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// The test binary is also the processes of members.
func TestMain(m *testing.M) {
	if text := os.Getenv(jobEnv); text != "" {
		if err := child(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testkit.Main(m)
}
