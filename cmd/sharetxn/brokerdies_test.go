package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/history"
	"github.com/sharetxn/sharetxn/internal/broker/journal"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
)

// The page has each death, and says which ones profile KIP93 concedes.
func TestBrokerDiesPage(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	text, err := os.ReadFile("../../docs/matrix.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## A broker dies\n")
	table, _, _ = strings.Cut(table, "\n## ")
	told := make(map[string]string) // what KIP93 does, by name
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, " | "); len(cells) == 5 {
			for name := range strings.SplitSeq(cells[1], ", ") {
				told[name] = cells[3]
			}
		}
	}
	for _, d := range deaths {
		want := "once"
		if d.window {
			want = "window 2"
		}
		if told[d.name] != want {
			t.Errorf("%s: the page says %q, want %q", d.name, told[d.name], want)
		}
	}
	if len(told) != len(deaths)+1 { // and the table's head
		t.Errorf("the page has %q", slices.Sorted(maps.Keys(told)))
	}
}

// lives are a broker's, one after the other on one folder. Each ends in a case of
// its own, and the next one serves the rest of that.
type lives struct {
	t       *testing.T
	notes   string // folder of what the processes write down
	data    string // the brokers' folder
	broker  *killable
	cases   []mortal
	history chronicle
	reader  *readAlong
	outputs []string // that it reads
}

// mortal is a case, and the death that belongs to it.
type mortal struct {
	job
	death
	doom    doom
	doubled int  // outputs too many
	ran     bool // -run may leave cases out
}

// A broker kills itself in the midst of a transaction, at each moment that something
// of it is on disk and what belongs to it is not, and comes back; the service goes
// on. Every input is published once and acknowledged, but for what profile KIP93
// concedes: what was staged when the broker died, of a transaction that committed.
// The history of all lives holds, and so does what the folder has in the end.
func TestBrokerDies(t *testing.T) {
	t.Parallel()
	for _, p := range promises {
		if p.guarantee == processor.AckAfterCommit {
			continue // promises nothing here that Ledger does not
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			ctx := testkit.Deadline(t, 8*time.Minute)
			l := born(ctx, t, p)
			for i := range l.cases {
				if !t.Run(l.cases[i].name, func(t *testing.T) { l.die(ctx, t, i) }) {
					t.Fatal("what comes after that says nothing")
				}
			}
			l.judge(ctx)
		})
	}
}

// born starts the first life.
func born(ctx context.Context, t *testing.T, p promise) *lives {
	t.Helper()
	addr := free(ctx, t)
	l := &lives{t: t, notes: t.TempDir(), data: t.TempDir()}
	l.broker = &killable{t: t, args: append([]string{"broker", "--listen", addr, "--data", l.data}, p.broker...)}
	var err error
	if l.history, err = openChronicle(filepath.Join(l.notes, "history")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.history.file.Close() })
	for _, d := range deaths {
		if !d.under(p) {
			continue
		}
		m := mortal{death: d, job: job{Seed: addr, KIP93: p.kip93, Guarantee: p.guarantee, Case: d.name, History: l.history.file.Name()}}
		if d.suicide() {
			m.doom = doom{Case: d.name, Death: d.name, Witness: filepath.Join(l.notes, d.name)}
		}
		m.doom.History = m.History
		l.cases, l.outputs = append(l.cases, m), append(l.outputs, m.out())
		l.broker.args = append(l.broker.args, "--topic", m.in(), "--topic", m.out(), "--topic", m.dead())
	}
	l.live(ctx, 0)
	t.Cleanup(l.broker.end)
	l.reader = l.cases[0].reading(t, l.history, l.outputs...)
	return l
}

// live starts the life that ends in case i, or after the last.
func (l *lives) live(ctx context.Context, i int) {
	l.broker.doom = &doom{History: l.history.file.Name()}
	if i < len(l.cases) {
		l.broker.doom = &l.cases[i].doom
	}
	l.broker.start(ctx)
}

// die is one case: a service is at work, the broker dies, another one comes.
func (l *lives) die(ctx context.Context, t *testing.T, i int) {
	m := &l.cases[i]
	m.ran = true
	if l.broker.doom != &m.doom { // the cases before were left out
		l.broker.kill()
		l.forget(t)
		l.live(ctx, i)
	}
	j := m.job
	a := observe(ctx, t, j)
	if err := groupconfig.Set(ctx, a.cl, j.Case, groupconfig.DeliveryCountLimit(10)); err != nil { // a death may cost a delivery, and aborts after it besides
		t.Fatal(err)
	}
	a.feed()
	if m.heir {
		j.Step = "staged"
		spawn(ctx, t, j).dead()
		j.Step = ""
	}
	s := spawn(ctx, t, j)
	if m.suicide() {
		l.broker.dead()
		if at := wordsOf(t, m.doom.Witness, wordKill); len(at) != 1 || at[0] != m.name {
			t.Fatalf("the broker died at %q, not at %q", at, m.name)
		}
	} else {
		a.drained(s)
		l.broker.kill()
	}
	if cut := l.forget(t); m.write != "" && cut != m.half {
		t.Errorf("the journal ends in half a change: %v, want %v", cut, m.half)
	}
	l.live(ctx, i+1)
	a = observe(ctx, t, j) // connections of before are cut
	a.drained(s)
	s.stop()
	out := visible(ctx, t, a.cl, j.out())
	for _, v := range inputs() {
		if out[v] < 1 || out[v] > 2 {
			t.Errorf("input %s is there %d times", v, out[v])
		}
		m.doubled += out[v] - 1
	}
	if len(out) != len(inputs()) {
		t.Errorf("outputs %v", out)
	}
	if dead := visible(ctx, t, a.cl, j.dead()); len(dead) > 0 {
		t.Errorf("dead letters %v", dead)
	}
	if conceded := m.window && j.KIP93; conceded != (m.doubled > 0) {
		t.Errorf("%d inputs are there twice, want some: %v", m.doubled, conceded)
	}
}

// forget notes what the death that was makes of share groups: what the journal does
// not have never happened, for who reads it. It tells whether the journal ends in
// half a change.
func (l *lives) forget(t *testing.T) (cut bool) {
	t.Helper()
	images, cut := images(t, l.data)
	events, err := l.history.events()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range forgotten(events, images) {
		l.history.add(e)
	}
	return cut
}

// judge ends the last life, and holds all of them, and what is in the folder,
// against the rules.
func (l *lives) judge(ctx context.Context) {
	l.t.Helper()
	l.reader.finish(ctx, l.t, l.history, observe(ctx, l.t, l.cases[0].job).feeder, l.outputs...)
	l.broker.kill()
	l.forget(l.t)
	events, err := l.history.events()
	if err != nil {
		l.t.Fatal(err)
	}
	cfg, err := brokerConfig(l.broker.args[1:], os.Stderr)
	if err != nil {
		l.t.Fatal(err)
	}
	cfg.History = true
	c, err := broker.Start(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	for _, m := range l.cases {
		if !m.ran {
			continue
		}
		ledger, guarantee := topic.Name(m.Case), check.GuaranteeStaged
		if m.Guarantee == processor.Ledger {
			guarantee = check.GuaranteeLedger
		}
		facts, err := c.Facts(ctx, m.Case, m.out(), m.dead(), ledger)
		if err != nil {
			l.t.Fatal(err)
		}
		facts.Events, facts.Times, facts.Outputs = m.own(events), nil, []string{m.out(), m.dead()}
		h := facts.History(guarantee)
		h.Ledger = ledger
		m.judge(l.t, h)
		for at, log := range facts.Logs {
			if twice := markedTwice(log); len(twice) > 0 {
				l.t.Errorf("%s: %v: several markers of %v", m.Case, at, twice)
			}
		}
	}
}

// own leaves out what a reader had of other cases.
func (m mortal) own(events []history.Event) []history.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool {
		switch e := e.(type) {
		case check.Read:
			return e.Topic != m.out()
		case check.Reached:
			return e.Topic != m.out()
		}
		return false
	})
}

// markedTwice are the transactions that have more than one marker in a log.
func markedTwice(log history.Log) (twice []txn.Key) {
	seen := make(map[txn.Key]bool)
	for _, b := range log.Batches {
		if b.Control && seen[b.Writer] {
			twice = append(twice, b.Writer)
		}
		seen[b.Writer] = seen[b.Writer] || b.Control
	}
	return twice
}

// judge holds one case against the rules.
func (m mortal) judge(t *testing.T, h *check.History) {
	t.Helper()
	report := check.Judge(h)
	bad := report.Acknowledged != records || report.Doubled != m.doubled
	for _, rule := range []check.Rule{check.I1, check.I3, check.I4, check.I5, check.I6, check.I7, check.I8} {
		_, unjudged := report.Unjudged[rule]
		bad = bad || unjudged
	}
	if !bad && len(report.Wrong()) == 0 {
		t.Logf("%s: %v", m.Case, report)
		return
	}
	t.Errorf("%s: of %d inputs %d are acknowledged, %d conceded to be there twice, and %d are: %v", m.Case, records, report.Acknowledged, report.Doubled, m.doubled, report)
	_ = h.Write(t.Output())
}

// shareAt is a share partition.
type shareAt struct {
	group     string
	topic     [16]byte
	partition int32
}

// images reads what the journal of a dead broker has of share partitions, and
// whether a kill cut it short.
func images(t *testing.T, dir string) (found map[shareAt]share.PartitionImage, cut bool) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state") // to open a journal is to mend it
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	mended, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	found = make(map[shareAt]share.PartitionImage)
	for key, value := range j.All() {
		if !strings.HasPrefix(key, "part/") {
			continue
		}
		var image share.PartitionImage
		if err := json.Unmarshal(value, &image); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		found[shareAt{image.Group, image.Topic, image.Partition}] = image
	}
	return found, mended.Size() < int64(len(raw))
}

// forgotten are the events by which what was told comes to what the journal has. A
// record that was staged, or done by that, and is neither any more, is lost to its
// transaction.
func forgotten(events []history.Event, images map[shareAt]share.PartitionImage) (out []share.Event) {
	type record struct {
		shareAt
		offset int64
	}
	var order []record
	last, txns := make(map[record]share.Event), make(map[record]share.Event)
	for _, e := range events {
		e, ok := e.(share.Event)
		if !ok {
			continue
		}
		for o := e.First; o <= e.Last; o++ {
			r := record{shareAt{e.Group, e.Topic, e.Partition}, o}
			if _, seen := last[r]; !seen {
				order = append(order, r)
			}
			last[r] = e
			switch e.Kind {
			case share.EventStaged:
				txns[r] = e
			case share.EventResolved:
			default:
				delete(txns, r)
			}
		}
	}
	for _, r := range order {
		was, image := last[r], images[r.shareAt]
		state, count := share.Available, int16(0)
		if r.offset < image.Start {
			if was.To == share.Acknowledged || was.To == share.Archived {
				continue
			}
			state, count = share.Acknowledged, was.Count
		}
		if i := slices.IndexFunc(image.Entries, func(e share.EntryImage) bool { return r.offset <= e.Last }); i >= 0 && r.offset >= image.Start {
			state, count = image.Entries[i].State, image.Entries[i].Count
		}
		if state == was.To && count == was.Count {
			continue
		}
		e := share.Event{Kind: share.EventForgotten, Group: r.group, Topic: r.topic, Partition: r.partition, First: r.offset, Last: r.offset, Count: count, To: state}
		if by, ok := txns[r]; ok && state == share.Available {
			e.Kind, e.Why, e.ProducerID, e.ProducerEpoch, e.Type = share.EventLost, share.LostLeader, by.ProducerID, by.ProducerEpoch, by.Type
		}
		out = append(out, e)
	}
	return out
}
