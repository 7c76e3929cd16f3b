//go:build !race

package sharetxntest

import "testing"

func guardRaceDetector(testing.TB) {}
