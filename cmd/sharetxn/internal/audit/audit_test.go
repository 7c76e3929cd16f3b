package audit

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/quake"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

var names = Topics{Source: "in", Enriched: "out", Alerts: "alerts", Dead: "dead"}

const (
	small = `{"id":"a","properties":{"mag":1,"type":"earthquake"}}`
	large = `{"id":"b","properties":{"mag":6,"type":"earthquake"}}`
	blast = `{"id":"c","properties":{"mag":2,"type":"quarry blast"}}`
)

// right is what brokers hold after a run over small, large and blast.
func right() (Config, Facts) {
	cfg := Config{Group: "g", Topics: names, Input: [][]byte{[]byte(small), []byte(large), []byte(blast)}}
	s, l := quake.Transform([]byte(small)), quake.Transform([]byte(large))
	return cfg, Facts{
		Records: map[string][]Record{
			"in":     {{Partition: 0, Value: small}, {Partition: 1, Value: large}, {Partition: 0, Value: blast}},
			"out":    {{Value: string(s.Enriched)}, {Value: string(l.Enriched)}},
			"alerts": {{Value: string(l.Alert)}},
			"dead":   {{Value: blast, Reason: `type "quarry blast"`}},
		},
		Stable: map[string]bool{"in": true, "out": true, "alerts": true, "dead": true},
		Lag:    map[int32]Progress{0: {Start: 2, End: 2}, 1: {Start: 1, End: 1}},
	}
}

func TestRight(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	r := Judge(right())
	if !r.OK() || r.Accepted != 2 || r.Alerts != 1 || r.Rejected != 1 || r.Outputs != 4 {
		t.Fatalf("%+v", r)
	}
	var text strings.Builder
	if err := r.Write(&text); err != nil || !strings.Contains(text.String(), "audit: right") {
		t.Fatalf("%v %s", err, text.String())
	}
}

// Each way in which a history can be bad is caught.
func TestWrong(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for name, c := range map[string]struct {
		spoil func(*Config, *Facts)
		says  string
	}{
		"output twice":              {func(_ *Config, f *Facts) { f.Records["out"] = append(f.Records["out"], f.Records["out"][0]) }, "topic out: 1 duplicate"},
		"output missing":            {func(_ *Config, f *Facts) { f.Records["out"] = f.Records["out"][1:] }, "topic out: 1 missing"},
		"alert missing":             {func(_ *Config, f *Facts) { f.Records["alerts"] = nil }, "topic alerts: 1 missing"},
		"alert of a small one":      {func(_ *Config, f *Facts) { f.Records["alerts"] = append(f.Records["alerts"], Record{Value: "x"}) }, "topic alerts: 1 unexpected"},
		"dead letter twice":         {func(_ *Config, f *Facts) { f.Records["dead"] = append(f.Records["dead"], f.Records["dead"][0]) }, "topic dead: 1 duplicate"},
		"dead letter's reason":      {func(_ *Config, f *Facts) { f.Records["dead"][0].Reason = "other" }, "topic dead: 1 missing"},
		"aborted output visible":    {func(_ *Config, f *Facts) { f.Records["out"] = append(f.Records["out"], Record{Value: `{"event":"z"}`}) }, "topic out: 1 unexpected"},
		"rejected one processed":    {func(_ *Config, f *Facts) { f.Records["out"] = append(f.Records["out"], Record{Value: blast}) }, "topic out: 1 unexpected"},
		"lag left":                  {func(_ *Config, f *Facts) { f.Lag[0] = Progress{Start: 1, End: 2, Lag: 1} }, "partition 0: 1 of 2"},
		"never fetched":             {func(_ *Config, f *Facts) { f.Lag[0] = Progress{Start: -1, End: 2, Lag: -1} }, "partition 0"},
		"group unknown":             {func(_ *Config, f *Facts) { f.Lag = nil }, "not known"},
		"hanging transaction":       {func(_ *Config, f *Facts) { f.Stable["out"] = false }, "last stable offset"},
		"open transaction":          {func(_ *Config, f *Facts) { f.Open = 1 }, "1 transactions are still open"},
		"input lost while feeding":  {func(c *Config, _ *Facts) { c.Input = append(c.Input, []byte("x")) }, "topic in: 1 missing"},
		"input twice while feeding": {func(_ *Config, f *Facts) { f.Records["in"] = append(f.Records["in"], f.Records["in"][0]) }, "topic in: 1 duplicate"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, f := right()
			c.spoil(&cfg, &f)
			r := Judge(cfg, f)
			if r.OK() || !strings.Contains(strings.Join(r.Wrong, "\n"), c.says) {
				t.Fatalf("not caught: %q", r.Wrong)
			}
		})
	}
}

// The audit is independent of what it judges.
func TestImports(t *testing.T) {
	testkit.Deadline(t, 60*time.Second)
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/sharetxn/sharetxn"
	for dep := range strings.FieldsSeq(string(out)) {
		if rest, ours := strings.CutPrefix(dep, module); ours && !strings.HasPrefix(rest, "/cmd/sharetxn/internal/audit") && !strings.HasPrefix(rest, "/cmd/sharetxn/internal/quake") {
			t.Errorf("the audit depends on %s", dep)
		}
	}
}
