package audit

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/quake"
)

// identity is what makes two records the same.
type identity struct{ key, value, reason string }

// want is what must be visible on a topic: each record as often as sources stand
// beside it.
type want map[identity][]Source

// nowhere is the source of an input that is not on the source topic.
var nowhere = Source{-1, -1}

// Judge is pure: it holds facts against what the input must become.
func Judge(cfg Config, f Facts) *Report {
	r := &Report{Input: len(cfg.Input), Staged: f.Staged, Open: f.Open, Commits: f.Commits, Aborts: f.Aborts, Windows: make(map[string]int), rows: make(map[int32]*Row)}
	r.progress(f)
	fed, expected := expect(cfg, f.Records[cfg.Topics.Source])
	r.compare(cfg.Topics.Source, fed, f.Records[cfg.Topics.Source], concessions{}, func(row *Row) *int { return &row.Inputs })
	for topic, count := range map[string]func(*Row) *int{
		cfg.Topics.Enriched: func(row *Row) *int { return &row.Accepted },
		cfg.Topics.Alerts:   func(row *Row) *int { return &row.Alerts },
		cfg.Topics.Dead:     func(row *Row) *int { return &row.Rejected },
	} {
		r.compare(topic, expected[topic], f.Records[topic], concessions{f.Conceded, cfg.Doubles}, count)
		r.Outputs += len(f.Records[topic])
	}
	r.total()
	if f.Members > 0 {
		r.wrong("%d members are still in the group", f.Members)
	}
	if f.Staged > 0 {
		r.wrong("%d acknowledgements are still staged", f.Staged)
	}
	for _, p := range f.Unstable {
		r.wrong("partition %s: the last stable offset is below the high watermark: a transaction hangs", p)
	}
	if f.Open > 0 {
		r.wrong("%d transactions are still open", f.Open)
	}
	if int64(f.Commits) != cfg.Commits {
		r.wrong("the members report %d commits, the logs hold markers of %d", cfg.Commits, f.Commits)
	}
	for _, w := range f.Wrong {
		r.wrong("the brokers' history: %s", w)
	}
	slices.Sort(r.Wrong)
	return r
}

// progress judges what is done for the group.
func (r *Report) progress(f Facts) {
	for p, at := range f.Progress {
		row := r.row(p)
		row.Start, row.End, row.Lag = at.Start, at.End, at.Lag
		switch {
		case at.Lag < 0 && at.End > 0: // never read, so all of it is left
			row.Lag = at.End
			r.wrong("source partition %d: the group never read its %d records", p, at.End)
		case at.Lag < 0:
			row.Lag = 0
		case at.Lag > 0:
			r.wrong("source partition %d: %d of %d records are not done for the group (start offset %d)", p, at.Lag, at.End, at.Start)
		}
	}
}

// expect gives what must be on the source topic and, recomputed from the
// input, on each output topic.
func expect(cfg Config, source []Record) (fed want, outputs map[string]want) {
	homes := make(map[string][]Source)
	for _, rec := range source {
		homes[rec.Value] = append(homes[rec.Value], rec.Source)
	}
	fed, outputs = make(want), make(map[string]want)
	for _, topic := range cfg.Topics.outputs() {
		outputs[topic] = make(want)
	}
	for _, line := range cfg.Input {
		home := nowhere
		if at := homes[string(line)]; len(at) > 0 {
			home, homes[string(line)] = at[0], at[1:]
		}
		add := func(to want, id identity) { to[id] = append(to[id], home) }
		add(fed, identity{value: string(line)})
		res := quake.Transform(line)
		if res.Rejected() { // a copy of the input, which has no key
			add(outputs[cfg.Topics.Dead], identity{value: string(line), reason: res.Reason})
			continue
		}
		key := string(res.Key)
		add(outputs[cfg.Topics.Enriched], identity{key: key, value: string(res.Enriched)})
		if res.Alert != nil {
			add(outputs[cfg.Topics.Alerts], identity{key: key, value: string(res.Alert)})
		}
	}
	return fed, outputs
}

// concessions are the outputs that may be visible more than once, with why.
type concessions struct {
	records map[Source]string
	all     string // of each; empty: of none
}

// of gives the one of several equal inputs that extra outputs are put down to.
func (c concessions) of(homes []Source) (home Source, window string) {
	for _, s := range homes {
		if c.records[s] != "" {
			return s, c.records[s]
		}
	}
	return homes[0], c.all
}

// compare holds what is visible on a topic against what must be, as multisets,
// and counts what is right in the rows of its source partitions. A duplicate of
// a conceded record is counted and is not wrong; that there are no more of it
// than concessions the brokers' history knows.
func (r *Report) compare(topic string, want want, visible []Record, conceded concessions, count func(*Row) *int) {
	got := make(map[identity]int)
	for _, rec := range visible {
		got[identity{rec.Key, rec.Value, rec.Reason}]++
	}
	var missing, duplicates, unexpected int
	for id, homes := range want {
		there := min(got[id], len(homes))
		for _, home := range homes[:there] {
			*count(r.row(home.Partition))++
		}
		for _, home := range homes[there:] {
			r.row(home.Partition).Missing++
			missing++
		}
		extra := got[id] - there
		if extra == 0 {
			continue
		}
		home, window := conceded.of(homes)
		if window != "" {
			r.Windows[window] += extra
			r.row(home.Partition).Conceded += extra
		} else {
			duplicates += extra
		}
		r.row(home.Partition).Duplicates += extra
	}
	for id, n := range got {
		if len(want[id]) == 0 {
			unexpected += n
		}
	}
	r.Unexpected += unexpected
	for what, n := range map[string]int{"missing": missing, "duplicate": duplicates, "unexpected": unexpected} {
		if n > 0 {
			r.wrong("topic %s: %d %s", topic, n, what)
		}
	}
}

func (r *Report) row(p int32) *Row {
	if r.rows[p] == nil {
		r.rows[p] = &Row{Partition: p}
	}
	return r.rows[p]
}

// total makes the sums of all rows.
func (r *Report) total() {
	for _, p := range slices.Sorted(maps.Keys(r.rows)) {
		row := *r.rows[p]
		r.Rows = append(r.Rows, row)
		r.Accepted += row.Accepted
		r.Rejected += row.Rejected
		r.Alerts += row.Alerts
		r.Missing += row.Missing
		r.Duplicates += row.Duplicates
		r.Conceded += row.Conceded
		r.Lag += row.Lag
	}
}

func (r *Report) wrong(format string, args ...any) {
	r.Wrong = append(r.Wrong, fmt.Sprintf(format, args...))
}
