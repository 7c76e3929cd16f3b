package orders

import (
	"testing"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// TestMain fails the package if goroutines are left over; goleak does the same
// for you.
func TestMain(m *testing.M) { testkit.Main(m) }
