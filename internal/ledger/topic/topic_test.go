package topic_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// A group whose name cannot be a topic's has no ledger, and is told which
// character it is.
func TestCheckGroup(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for group, says := range map[string]string{
		"orders":                 "",
		"Orders.v2_eu-west":      "",
		strings.Repeat("g", 231): "",
		"":                       "empty",
		"orders:v2":              `':' cannot`,
		"the orders":             `' ' cannot`,
		"größe":                  `'ö' cannot`,
		strings.Repeat("g", 232): "at most 231",
	} {
		err := topic.CheckGroup("Ensure", group)
		switch {
		case says == "" && err != nil:
			t.Errorf("%q: %v", group, err)
		case says != "" && (sharetxn.ClassOf(err) != sharetxn.ClassUsage || !strings.Contains(err.Error(), says)):
			t.Errorf("%q: %v, want %q", group, err, says)
		}
	}
	if got := topic.Name("orders"); got != "__sharetxn_ledger.orders" {
		t.Errorf("name %s", got)
	}
}
