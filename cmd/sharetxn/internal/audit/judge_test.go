package audit

import (
	"slices"
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

// right is what brokers hold after a run over small, twice large, and blast.
func right() (Config, Facts) {
	cfg := Config{Group: "g", Topics: names, Commits: 2, Input: [][]byte{[]byte(small), []byte(large), []byte(blast), []byte(large)}}
	s, l := quake.Transform([]byte(small)), quake.Transform([]byte(large))
	enriched, alert := Record{Key: "b", Value: string(l.Enriched)}, Record{Key: "b", Value: string(l.Alert)}
	return cfg, Facts{
		Records: map[string][]Record{
			"in":     {{Source: Source{0, 0}, Value: small}, {Source: Source{1, 0}, Value: large}, {Source: Source{0, 1}, Value: blast}, {Source: Source{2, 0}, Value: large}},
			"out":    {{Key: "a", Value: string(s.Enriched)}, enriched, enriched},
			"alerts": {alert, alert},
			"dead":   {{Value: blast, Reason: `type "quarry blast"`}},
		},
		Progress: map[int32]Progress{0: {2, 2, 0}, 1: {1, 1, 0}, 2: {1, 1, 0}, 3: {-1, 0, -1}},
		Commits:  2, Aborts: 1,
	}
}

func TestRight(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	r := Judge(right())
	if !r.OK() || r.Input != 4 || r.Accepted != 3 || r.Alerts != 2 || r.Rejected != 1 || r.Outputs != 6 || r.Commits != 2 || r.Aborts != 1 {
		t.Fatalf("%+v", r)
	}
	if want := []Row{
		{Partition: 0, Inputs: 2, Accepted: 1, Rejected: 1, Start: 2, End: 2},
		{Partition: 1, Inputs: 1, Accepted: 1, Alerts: 1, Start: 1, End: 1},
		{Partition: 2, Inputs: 1, Accepted: 1, Alerts: 1, Start: 1, End: 1},
		{Partition: 3, Start: -1},
	}; !slices.Equal(r.Rows, want) {
		t.Errorf("rows %+v", r.Rows)
	}
	var text strings.Builder
	if err := r.Write(&text); err != nil || !strings.Contains(text.String(), "audit: right") {
		t.Fatalf("%v %s", err, text.String())
	}
}

func TestNothing(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	r := Judge(Config{Group: "g", Topics: names}, Facts{Progress: map[int32]Progress{0: {-1, 0, -1}}})
	if !r.OK() || r.Input+r.Accepted+r.Rejected+r.Outputs != 0 || r.Lag != 0 {
		t.Fatalf("%+v", r)
	}
}

// Each way in which a history can be bad is caught and told.
func TestWrong(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	again := func(topic string) func(*Config, *Facts) {
		return func(_ *Config, f *Facts) { f.Records[topic] = append(f.Records[topic], f.Records[topic][0]) }
	}
	lost := func(topic string) func(*Config, *Facts) {
		return func(_ *Config, f *Facts) { f.Records[topic] = f.Records[topic][1:] }
	}
	extra := func(topic string, r Record) func(*Config, *Facts) {
		return func(_ *Config, f *Facts) { f.Records[topic] = append(f.Records[topic], r) }
	}
	for name, c := range map[string]struct {
		spoil func(*Config, *Facts)
		says  []string // all, and nothing else
	}{
		"output twice":         {again("out"), []string{"topic out: 1 duplicate"}},
		"output missing":       {lost("out"), []string{"topic out: 1 missing"}},
		"one of two equal":     {lost("alerts"), []string{"topic alerts: 1 missing"}},
		"one more than two":    {again("alerts"), []string{"topic alerts: 1 duplicate"}},
		"alert of a small one": {extra("alerts", Record{Key: "a", Value: `{"event":"a","magnitude":1,"cell":"none"}`}), []string{"topic alerts: 1 unexpected"}},
		"dead letter twice":    {again("dead"), []string{"topic dead: 1 duplicate"}},
		"dead letter missing":  {lost("dead"), []string{"topic dead: 1 missing"}},
		"dead letter's reason": {func(_ *Config, f *Facts) { f.Records["dead"][0].Reason = "other" }, []string{"topic dead: 1 missing", "topic dead: 1 unexpected"}},
		"no reason":            {func(_ *Config, f *Facts) { f.Records["dead"][0].Reason = "" }, []string{"topic dead: 1 missing", "topic dead: 1 unexpected"}},
		"other key":            {func(_ *Config, f *Facts) { f.Records["out"][0].Key = "" }, []string{"topic out: 1 missing", "topic out: 1 unexpected"}},
		"altered on the way":   {func(_ *Config, f *Facts) { f.Records["out"][0].Value += " " }, []string{"topic out: 1 missing", "topic out: 1 unexpected"}},
		"lost and doubled":     {func(_ *Config, f *Facts) { f.Records["out"][0] = f.Records["out"][1] }, []string{"topic out: 1 duplicate", "topic out: 1 missing"}},
		"rejected one as well": {extra("out", Record{Key: "c", Value: `{"event":"c"}`}), []string{"topic out: 1 unexpected"}},
		"on the wrong topic":   {extra("dead", Record{Key: "a", Value: small}), []string{"topic dead: 1 unexpected"}},
		"lag left":             {func(_ *Config, f *Facts) { f.Progress[0] = Progress{1, 2, 1} }, []string{"source partition 0: 1 of 2 records are not done for the group (start offset 1)"}},
		"never read":           {func(_ *Config, f *Facts) { f.Progress[0] = Progress{-1, 2, -1} }, []string{"source partition 0: the group never read its 2 records"}},
		"a member stays":       {func(_ *Config, f *Facts) { f.Members = 1 }, []string{"1 members are still in the group"}},
		"staged left":          {func(_ *Config, f *Facts) { f.Staged = 3 }, []string{"3 acknowledgements are still staged"}},
		"by the history":       {func(_ *Config, f *Facts) { f.Wrong = []string{"lost: in-0 offset 1"} }, []string{"the brokers' history: lost: in-0 offset 1"}},
		"conceded elsewhere": {
			func(_ *Config, f *Facts) {
				f.Records["out"] = append(f.Records["out"], f.Records["out"][0]) // of in-0 offset 0
				f.Conceded = map[Source]string{{0, 1}: "its leader moved"}
			},
			[]string{"topic out: 1 duplicate"},
		},
		"conceded, and missing": {
			func(_ *Config, f *Facts) {
				f.Records["out"] = f.Records["out"][1:]
				f.Conceded = map[Source]string{{0, 0}: "its leader moved"}
			},
			[]string{"topic out: 1 missing"},
		},
		"hanging transaction":  {func(_ *Config, f *Facts) { f.Unstable = []string{"out-0"} }, []string{"partition out-0: the last stable offset is below the high watermark: a transaction hangs"}},
		"open transaction":     {func(_ *Config, f *Facts) { f.Open = 1 }, []string{"1 transactions are still open"}},
		"commit without proof": {func(c *Config, _ *Facts) { c.Commits++ }, []string{"the members report 3 commits, the logs hold markers of 2"}},
		"commit not reported":  {func(c *Config, _ *Facts) { c.Commits-- }, []string{"the members report 1 commits, the logs hold markers of 2"}},
		"input fed twice":      {again("in"), []string{"topic in: 1 duplicate"}},
		"input never fed": {
			func(c *Config, _ *Facts) { c.Input = append(c.Input, []byte("x")) },
			[]string{"topic dead: 1 missing", "topic in: 1 missing"},
		},
		"more was fed": {extra("in", Record{Value: "x"}), []string{"topic in: 1 unexpected"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, f := right()
			c.spoil(&cfg, &f)
			r := Judge(cfg, f)
			if r.OK() || !slices.Equal(r.Wrong, c.says) {
				t.Fatalf("says %q, want %q", r.Wrong, c.says)
			}
			var text strings.Builder
			if err := r.Write(&text); err != nil || !strings.Contains(text.String(), "WRONG") || !strings.Contains(text.String(), c.says[0]) {
				t.Errorf("%v, %s", err, text.String())
			}
		})
	}
}

// What is wrong is shown beside the source partition that it belongs to.
func TestRows(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	cfg, f := right()
	f.Records["dead"] = nil                                          // of partition 0
	f.Records["alerts"] = f.Records["alerts"][:1]                    // of one of the two large ones
	f.Records["out"] = append(f.Records["out"], f.Records["out"][0]) // of small, partition 0
	f.Progress[1] = Progress{-1, 1, -1}
	r := Judge(cfg, f)
	if want := []Row{
		{Partition: 0, Inputs: 2, Accepted: 1, Missing: 1, Duplicates: 1, Start: 2, End: 2},
		{Partition: 1, Inputs: 1, Accepted: 1, Alerts: 1, Start: -1, End: 1, Lag: 1},
		{Partition: 2, Inputs: 1, Accepted: 1, Missing: 1, Start: 1, End: 1},
		{Partition: 3, Start: -1},
	}; !slices.Equal(r.Rows, want) {
		t.Errorf("rows %+v", r.Rows)
	}
	if r.Missing != 2 || r.Duplicates != 1 || r.Lag != 1 || r.Rejected != 0 || r.Accepted != 3 {
		t.Errorf("%+v", r)
	}
}

// A duplicate of a conceded record is counted, named and not wrong; which of
// several equal inputs it is of plays no part.
func TestConceded(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	cfg, f := right()
	f.Records["alerts"] = append(f.Records["alerts"], f.Records["alerts"][0])
	f.Records["out"] = append(f.Records["out"], f.Records["out"][1])
	f.Conceded = map[Source]string{{2, 0}: "its leader moved", {0, 0}: "its lock ended"}
	r := Judge(cfg, f)
	if !r.OK() || r.Duplicates != 2 || r.Conceded != 2 || r.Accepted != 3 || r.Alerts != 2 || r.Outputs != 8 || r.Rows[2].Conceded != 2 {
		t.Fatalf("%+v", r)
	}
	if len(r.Windows) != 1 || r.Windows["its leader moved"] != 2 {
		t.Errorf("windows %v", r.Windows)
	}
	var text strings.Builder
	if err := r.Write(&text); err != nil || !strings.Contains(text.String(), "only where guarantee or profile concede it") || !strings.Contains(text.String(), "2 duplicates conceded: its leader moved") {
		t.Errorf("%v %s", err, text.String())
	}
}

// A guarantee of at least once lets any output double, and nothing else go wrong.
func TestDoubles(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	cfg, f := right()
	cfg.Doubles = "at least once"
	f.Records["out"] = append(f.Records["out"], f.Records["out"][0], f.Records["out"][1])
	f.Records["dead"] = append(f.Records["dead"], f.Records["dead"][0])
	f.Conceded = map[Source]string{{0, 0}: "its lock ended"}
	r := Judge(cfg, f)
	if !r.OK() || r.Duplicates != 3 || r.Conceded != 3 || r.Windows["at least once"] != 2 || r.Windows["its lock ended"] != 1 || r.Verdict() != "at least once" {
		t.Fatalf("%q: %+v", r.Verdict(), r)
	}
	f.Records["in"] = append(f.Records["in"], f.Records["in"][0]) // the input is none of its outputs
	f.Records["alerts"] = f.Records["alerts"][1:]
	if r := Judge(cfg, f); !slices.Equal(r.Wrong, []string{"topic alerts: 1 missing", "topic in: 1 duplicate"}) || r.Verdict() != "WRONG" {
		t.Errorf("%q: %+v", r.Verdict(), r)
	}
	if r := Judge(right()); r.Verdict() != "exactly once" {
		t.Errorf("right: %q", r.Verdict())
	}
}
