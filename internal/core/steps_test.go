package core_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestSteps(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	c := cluster(t)
	c.Step("begun") // nobody looks
	var seen []string
	c.OnStep(func(step string) { seen = append(seen, step) })
	c.Step("ended")
	c.Step("settled")
	if !slices.Equal(seen, []string{"ended", "settled"}) {
		t.Errorf("seen %q", seen)
	}
}
