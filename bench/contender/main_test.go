package contender

import (
	"fmt"
	"os"
	"testing"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// TestMain lets the test binary be a contender too.
func TestMain(m *testing.M) {
	if Serving() {
		if err := Serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testkit.Main(m)
}
