package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/sharetxn/sharetxn/bench/contender"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// TestMain lets the test binary be a contender too.
func TestMain(m *testing.M) {
	if contender.Serving() {
		if err := contender.Serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testkit.Main(m)
}
