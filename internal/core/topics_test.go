package core_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// A missing topic is told once, whoever sees it, and again only after it was
// there.
func TestSeenTopic(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	var log bytes.Buffer
	c := core.New(core.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	defer c.Close()
	for i, s := range []struct {
		topic  string
		exists bool
		told   int // warnings of that topic by then
	}{
		{"a", false, 1},
		{"a", false, 1},
		{"b", true, 0},
		{"b", false, 1},
		{"a", false, 1},
		{"a", true, 1},
		{"a", true, 1},
		{"a", false, 2},
		{"b", false, 1},
	} {
		c.SeenTopic(s.topic, s.exists)
		if told := strings.Count(log.String(), "does not exist; create it, or mend its name\" topic="+s.topic); told != s.told {
			t.Fatalf("step %d: %d warnings of %s, want %d", i, told, s.topic, s.told)
		}
	}
}
