// Package sweep has tests only: a small service is run from its start to its end,
// again and again, and each time another request meets with another fault, until
// every request of its life has met with every fault. Whatever it was, each record
// must be published once.
package sweep

import (
	"testing"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
