package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/bench/contender"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// took makes a run of 1,100 records, of which 1,000 count.
func took(read, acked, cpu time.Duration) *run {
	return &run{Report: contender.Report{Records: 1100, First: 100, Start: 1500 * time.Millisecond, Read: read, Acked: acked, CPU: cpu},
		Broker: 2 * cpu, Peak: 3 << 20}
}

// Ratios are taken within a round, between entrants of the same settings, and
// leave out what failed.
func TestRaceTable(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	r := race{
		Contest:  consumption{Size: 100, Records: 1100, Partitions: 4, Batch: 16384},
		Entrants: []entrant{{ours, false}, {kgos, false}, {ours, true}},
		Runs: [][]*run{
			{took(500*time.Millisecond, time.Second, time.Millisecond), took(5*time.Second, 10*time.Second, time.Millisecond)},
			{took(time.Second, 2*time.Second, 4*time.Millisecond), took(20*time.Second, 40*time.Second, 2*time.Millisecond)},
			{took(time.Second, time.Second, time.Millisecond), nil},
		},
		Failed: []string{"round 3, kgo, default: gone"},
	}
	var out bytes.Buffer
	r.write(&out)
	got := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"records of 100 bytes read and acknowledged: 1100 a run, 4 partitions",
		// a second: median, least, most; until the last was read; us: client, broker; processors; MB; ms
		"ours, default 550 100 1000 1100 1.00 2.00 0.00 3 1500 2750",
		"kgo, default 262 25 500 525 3.00 6.00 0.00 3 1500 10500",
		"ours, default : kgo 3.00 2.00 4.00 3.00 2.00 4.00 0.38 0.25 0.50",
		"failed: round 3, kgo, default: gone",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in the table:\n%s", want, &out)
		}
	}
	if strings.Contains(got, "ours, best : ") {
		t.Errorf("best settings beside defaults:\n%s", &out)
	}
}

func TestRaceTableWithoutRuns(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	r := race{Entrants: []entrant{{ours, false}, {kgos, false}}, Runs: [][]*run{{took(1, 1, 1)}, {nil}}}
	var out bytes.Buffer
	r.write(&out)
	if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got, "ours, default : kgo NaN") {
		t.Errorf("a ratio to nothing:\n%s", &out)
	}
}

func TestJudge(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	c := consumption{Size: 10, Records: 100}
	good := contender.Report{Records: 100, Bytes: 1000, First: 10, Read: 1, Acked: 2}
	for _, x := range []struct {
		name   string
		who    string
		change func(*contender.Report)
		ok     bool
	}{
		{"all", ours, func(*contender.Report) {}, true},
		{"a record twice", ours, func(r *contender.Report) { r.Records++; r.Bytes += 10 }, false},
		{"one too few", ours, func(r *contender.Report) { r.Records-- }, false},
		{"wrong bytes", kgos, func(r *contender.Report) { r.Bytes-- }, false},
		{"the floor does not look", floor, func(r *contender.Report) { r.Bytes = 0 }, true},
		{"all in the first poll", ours, func(r *contender.Report) { r.First = 100 }, false},
		{"no time", ours, func(r *contender.Report) { r.Read = 0 }, false},
		{"acknowledged before it was read", ours, func(r *contender.Report) { r.Read = 3 }, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := good
			x.change(&r)
			if err := c.judge(entrant{x.who, false}, r); (err == nil) != x.ok {
				t.Errorf("%+v: %v", r, err)
			}
		})
	}
}
