package share

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"pgregory.net/rapid"
)

// model is a share partition as one would write it down first: every offset by
// itself, and no ranges. Which of the free offsets an acquisition takes is the
// partition's choice; the model judges it.
type model struct {
	kip93      bool
	start, end int64
	at         map[int64]*cell // [start, end)
	limit      int16
}

type cell struct {
	state            State
	count, persisted int16
	owner            string
	deadline         time.Time
	pid              int64
	epoch            int16
	verdict          acks.Type
}

func (m *model) giveBack(c *cell) {
	*c = cell{state: Available, count: c.count, persisted: c.count}
	if c.count >= m.limit {
		c.state = Archived
	}
}

func (m *model) settle() {
	for m.start < m.end && m.at[m.start].state.terminal() {
		delete(m.at, m.start)
		m.start++
	}
}

func (m *model) each(fn func(int64, *cell)) {
	for _, o := range slices.Sorted(maps.Keys(m.at)) {
		fn(o, m.at[o])
	}
}

// apply judges one batch's offsets with fn and then changes all of them or none.
func (m *model) apply(bs []acks.AcknowledgementBatch, judge func(acks.Type, *cell) int16, change func(acks.Type, *cell)) int16 {
	for _, b := range bs {
		if b.LastOffset < m.start {
			continue
		}
		if len(m.at) == 0 {
			return codeInvalidRecordState
		}
		if b.LastOffset >= m.end {
			return codeInvalidRequest
		}
		for o := max(b.FirstOffset, m.start); o <= b.LastOffset; o++ {
			if code := judge(b.Types[min(int(o-b.FirstOffset), len(b.Types)-1)], m.at[o]); code != codeNone {
				return code
			}
		}
	}
	for _, b := range bs {
		for o := max(b.FirstOffset, m.start); o <= b.LastOffset; o++ {
			change(b.Types[min(int(o-b.FirstOffset), len(b.Types)-1)], m.at[o])
		}
	}
	m.settle()
	return codeNone
}

func (m *model) acknowledge(owner string, bs []acks.AcknowledgementBatch, rule ackRule) int16 {
	return m.apply(bs, func(t acks.Type, c *cell) int16 {
		if c.state != Acquired || c.owner != owner || (t == acks.Renew && !rule.renew) {
			return codeInvalidRecordState
		}
		return codeNone
	}, func(t acks.Type, c *cell) {
		switch t {
		case acks.Renew:
			c.deadline = rule.deadline
		case acks.Release:
			m.giveBack(c)
		case acks.Accept:
			*c = cell{state: Acknowledged, count: c.count, persisted: c.count}
		default:
			*c = cell{state: Archived, count: c.count, persisted: c.count}
		}
	})
}

func (m *model) stage(owner string, pid int64, epoch int16, bs []acks.AcknowledgementBatch) int16 {
	for _, b := range bs {
		for _, t := range b.Types {
			switch {
			case t == acks.Accept, t == acks.Reject, t == acks.Gap && !m.kip93:
			case m.kip93:
				return codeInvalidRecordState
			default:
				return codeInvalidRequest
			}
		}
		if code := m.apply([]acks.AcknowledgementBatch{b}, func(t acks.Type, c *cell) int16 {
			again := c.state == TxPending && c.pid == pid && c.epoch == epoch && c.verdict == t
			if c.owner != owner || (c.state != Acquired && !again) {
				return codeInvalidRecordState
			}
			return codeNone
		}, func(acks.Type, *cell) {}); code != codeNone {
			return code
		}
	}
	return m.apply(bs, func(acks.Type, *cell) int16 { return codeNone }, func(t acks.Type, c *cell) {
		if m.kip93 {
			c.state, c.pid, c.epoch, c.verdict = TxPending, pid, epoch, t
			return
		}
		*c = cell{state: TxPending, count: c.count, persisted: c.count, owner: owner, pid: pid, epoch: epoch, verdict: t}
	})
}

func (m *model) outcome(pid int64, epoch int16, commit bool) (n int64) {
	m.each(func(_ int64, c *cell) {
		if c.state != TxPending || c.pid != pid || c.epoch >= epoch {
			return
		}
		n++
		next := Available
		switch {
		case commit && c.verdict == acks.Accept:
			next = Acknowledged
		case commit:
			next = Archived
		case m.kip93:
			c.state, c.pid, c.epoch, c.verdict = Acquired, 0, 0, 0
			return
		}
		*c = cell{state: next, count: c.count, persisted: c.count}
	})
	m.settle()
	return n
}

func (m *model) end1(pick func(*cell) bool) {
	m.each(func(_ int64, c *cell) {
		if pick(c) {
			m.giveBack(c)
		}
	})
	m.settle()
}

func (m *model) leaderMoved() {
	m.each(func(_ int64, c *cell) {
		if c.state == Acquired || (c.state == TxPending && m.kip93) {
			*c = cell{count: c.persisted, persisted: c.persisted}
		}
	})
	for m.end > m.start && m.at[m.end-1].state == Available && m.at[m.end-1].count == 0 {
		m.end--
		delete(m.at, m.end)
	}
	m.settle()
}

func (m *model) logStartMoved(to int64) {
	floor := to
	m.each(func(o int64, c *cell) {
		if o < floor && c.state == TxPending {
			floor = o
		}
	})
	m.each(func(o int64, c *cell) {
		if (o < to && c.state == Available) || (o < floor && c.state == Acquired) {
			*c = cell{state: Archived, count: c.count, persisted: c.count}
		}
	})
	m.settle()
	if len(m.at) == 0 {
		m.start, m.end = max(m.start, to), max(m.end, to)
	}
}

// acquired checks what an acquisition took, from an offset on, and follows it.
func (m *model) acquired(got acquired, a acquireAsk, dead map[int64]bool, end int64) error {
	n, last := int64(0), int64(-1)
	for _, r := range got.ranges {
		for o := r.first; o <= r.last; o++ {
			n++
			if o <= last || o < a.from {
				return fmt.Errorf("offset %d after %d, read from %d", o, last, a.from)
			}
			last = o
			c := m.at[o]
			if c == nil && o < m.start {
				return fmt.Errorf("offset %d is done", o)
			}
			if c == nil {
				c = &cell{}
				m.at[o] = c
			}
			if c.state != Available || dead[o] {
				return fmt.Errorf("offset %d was %v, aborted %v", o, c.state, dead[o])
			}
			if r.count != c.count+1 {
				return fmt.Errorf("offset %d: delivery %d after %d", o, r.count, c.count)
			}
			*c = cell{state: Acquired, count: r.count, persisted: c.persisted, owner: a.owner, deadline: a.deadline}
		}
	}
	if a.exact && n > a.maxRecords {
		return fmt.Errorf("took %d, asked for exactly %d", n, a.maxRecords)
	}
	for o := m.end; o < end; o++ { // what the window grew over is free, or was aborted
		if m.at[o] == nil {
			m.at[o] = &cell{}
		}
	}
	m.end = max(m.end, end)
	return nil
}

// aborted archives, in the model, what a read_committed acquisition passed.
func (m *model) aborted(p *partition, dead map[int64]bool) {
	for o := range dead {
		if c := m.at[o]; c != nil && c.state == Available && (o < p.start || p.stateAt(o) == Archived) {
			*c = cell{state: Archived, count: c.count, persisted: c.count}
		}
	}
	m.settle()
}

func (p *partition) stateAt(o int64) State {
	for _, e := range p.entries {
		if e.first <= o && o <= e.last {
			return e.state
		}
	}
	return Archived
}

// same compares offset by offset.
func (m *model) same(p *partition) error {
	if err := check(p); err != nil {
		return err
	}
	if p.start != m.start || p.end != m.end {
		return fmt.Errorf("window [%d, %d), model [%d, %d)", p.start, p.end, m.start, m.end)
	}
	for _, e := range p.entries {
		for o := e.first; o <= e.last; o++ {
			got := cell{e.state, e.count, e.persisted, e.owner, e.deadline, e.producerID, e.producerEpoch, e.verdict}
			if got != *m.at[o] {
				return fmt.Errorf("offset %d is %+v, model %+v", o, got, *m.at[o])
			}
		}
	}
	return nil
}

func genBatches(t *rapid.T, start, end int64) (out []acks.AcknowledgementBatch) {
	lo := max(0, start-3)
	for range rapid.IntRange(1, 3).Draw(t, "batches") {
		if lo > end+2 {
			break
		}
		first := rapid.Int64Range(lo, min(lo+6, end+2)).Draw(t, "first")
		last := rapid.Int64Range(first, first+9).Draw(t, "last")
		// Mostly verdicts that can succeed.
		ty := rapid.SampledFrom([]acks.Type{acks.Accept, acks.Accept, acks.Reject, acks.Release, acks.Release, acks.Gap, acks.Renew})
		n := 1
		if rapid.Bool().Draw(t, "each") {
			n = int(last - first + 1)
		}
		out = append(out, acks.AcknowledgementBatch{FirstOffset: first, LastOffset: last, Types: rapid.SliceOfN(ty, n, n).Draw(t, "types")})
		lo = last + 1
	}
	return out
}

// ownBatches gives ranges that the owner holds, so that most requests succeed.
func ownBatches(t *rapid.T, p *partition, owner string, types ...acks.Type) (out []acks.AcknowledgementBatch) {
	for _, e := range p.entries {
		if e.owner == owner && (e.state == Acquired || e.state == TxPending) && rapid.Bool().Draw(t, "take") {
			out = append(out, batch(e.first, rapid.Int64Range(e.first, e.last).Draw(t, "last"), rapid.SampledFrom(types).Draw(t, "type")))
		}
	}
	return out
}

// TestAgainstModel runs random operations against the naive model: same states,
// start never back, counts one up per delivery, a repeated request or marker
// changes nothing, a call undone leaves nothing, and the events tell the same.
func TestAgainstModel(t *testing.T) {
	testkit.Deadline(t, 60*time.Second)
	for _, profile := range []wire.Profile{wire.Draft95, wire.KIP93} {
		t.Run(profile.String(), func(t *testing.T) { againstModel(t, profile) })
	}
}

func againstModel(t *testing.T, profile wire.Profile) {
	rapid.Check(t, func(t *rapid.T) {
		limit := int16(rapid.IntRange(2, 6).Draw(t, "limit"))
		locks := int64(rapid.IntRange(5, 60).Draw(t, "locks"))
		p := loadedAs(profile, 0, limit, locks)
		m := &model{kip93: profile == wire.KIP93, at: make(map[int64]*cell), limit: limit}
		told := make(follower)
		p.observe = func(ev Event) {
			if err := told.follow(ev); err != nil {
				t.Fatal(err)
			}
		}
		var log []put
		var logEnd, logStart int64
		now := lockEnd
		owners := rapid.SampledFrom([]string{"a", "b"})
		pids := rapid.Int64Range(7, 8)
		epochs := map[int64]int16{7: 0, 8: 0}
		start := int64(0)

		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				b := put{first: logEnd, n: rapid.Int64Range(1, 8).Draw(t, "n"), pid: -1}
				if rapid.IntRange(0, 5).Draw(t, "hole") == 0 {
					b.first += 2
				}
				if rapid.IntRange(0, 3).Draw(t, "aborted") == 0 { // producer 99 only ever aborts
					b.pid, b.txn = 99, true
				}
				log = append(log, b)
				logEnd = b.first + b.n
			},
			"acquire": func(t *rapid.T) {
				from, ok := p.next()
				if !ok {
					t.Skip("full")
				}
				a := acquireAsk{
					owner: owners.Draw(t, "owner"), deadline: now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "lock")) * time.Second), from: from,
					maxRecords: rapid.Int64Range(1, 30).Draw(t, "max"), exact: rapid.Bool().Draw(t, "exact"), committed: rapid.Bool().Draw(t, "committed"),
				}
				dead := make(map[int64]bool)
				var bs []put
				for _, b := range log {
					if b.first+b.n > max(from, logStart) && len(bs) < 6 {
						bs = append(bs, b)
					}
					for o := b.first; a.committed && b.pid == 99 && o < b.first+b.n; o++ {
						dead[o] = true
					}
				}
				a.chunk = chunkOf(bs...)
				a.chunk.Aborted = []AbortedTxn{{ProducerID: 99}}
				// Holes of the log before the first batch are archived.
				if len(bs) > 0 && bs[0].first > from {
					for o := from; o < bs[0].first; o++ {
						dead[o] = true
					}
				}
				// A hole before an aborted batch goes with it.
				for i := 1; a.committed && i < len(bs); i++ {
					if bs[i].pid == 99 {
						for o := bs[i-1].first + bs[i-1].n; o < bs[i].first; o++ {
							dead[o] = true
						}
					}
				}
				got := p.acquire(a)
				if err := m.acquired(got, a, dead, p.end); err != nil {
					t.Fatal(err)
				}
				m.aborted(p, dead)
			},
			"acknowledge": func(t *rapid.T) {
				owner := owners.Draw(t, "owner")
				bs := genBatches(t, p.start, p.end)
				if rapid.IntRange(0, 3).Draw(t, "own") > 0 {
					bs = ownBatches(t, p, owner, acks.Accept, acks.Reject, acks.Release, acks.Renew)
				}
				rule := ackRule{renew: rapid.Bool().Draw(t, "renew"), deadline: now.Add(5 * time.Second)}
				if got, want := p.acknowledge(owner, bs, rule), m.acknowledge(owner, bs, rule); got != want {
					t.Fatalf("acknowledge %v: %d, model %d", bs, got, want)
				}
			},
			"stage": func(t *rapid.T) {
				owner, pid := owners.Draw(t, "owner"), pids.Draw(t, "pid")
				bs := genBatches(t, p.start, p.end)
				if rapid.IntRange(0, 3).Draw(t, "own") > 0 {
					bs = ownBatches(t, p, owner, acks.Accept, acks.Reject, acks.Gap)
				}
				got, want := p.staging(owner, pid, epochs[pid], bs), m.stage(owner, pid, epochs[pid], bs)
				if got != want {
					t.Fatalf("stage %v: %d, model %d", bs, got, want)
				}
				before := dump(p)
				if again := p.staging(owner, pid, epochs[pid], bs); again != got || dump(p) != before {
					t.Fatalf("the same stage again: %d after %d,\n%s\n%s", again, got, before, dump(p))
				}
			},
			"stage, and undo": func(t *rapid.T) {
				owner, pid, before := owners.Draw(t, "owner"), pids.Draw(t, "pid"), dump(p)
				was, _ := p.stage(owner, pid, epochs[pid], ownBatches(t, p, owner, acks.Accept, acks.Reject))
				if p.unstage(was); dump(p) != before {
					t.Fatalf("undone, but changed\n%s to\n%s", before, dump(p))
				}
			},
			"outcome": func(t *rapid.T) {
				pid, commit := pids.Draw(t, "pid"), rapid.Bool().Draw(t, "commit")
				epoch := epochs[pid] + int16(rapid.IntRange(0, 1).Draw(t, "up"))
				if got, want := p.outcome(pid, epoch, commit), m.outcome(pid, epoch, commit); got != want {
					t.Fatalf("outcome decided %d, model %d", got, want)
				}
				epochs[pid] = epoch
				before := dump(p)
				if n := p.outcome(pid, epoch, !commit); n != 0 || dump(p) != before {
					t.Fatalf("a second marker decided %d", n)
				}
			},
			"release": func(t *rapid.T) {
				owner := owners.Draw(t, "owner")
				p.release(owner)
				m.end1(func(c *cell) bool { return c.state == Acquired && c.owner == owner })
			},
			"time passes": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 3).Draw(t, "s")) * time.Second)
				p.expire(now)
				m.end1(func(c *cell) bool {
					return (c.state == Acquired || (c.state == TxPending && m.kip93)) && !c.deadline.After(now)
				})
			},
			"leader moves": func(t *rapid.T) {
				p.leaderMoved()
				m.leaderMoved()
			},
			"log start moves": func(t *rapid.T) {
				if logEnd == logStart {
					t.Skip("nothing to delete")
				}
				logStart = rapid.Int64Range(logStart, min(logStart+5, logEnd)).Draw(t, "to")
				p.logStartMoved(logStart)
				m.logStartMoved(logStart)
			},
			"": func(t *rapid.T) {
				if err := m.same(p); err != nil {
					t.Fatalf("%v\n%s", err, dump(p))
				}
				if err := told.same(p); err != nil {
					t.Fatalf("%v\n%s", err, dump(p))
				}
				if p.start < start {
					t.Fatalf("start went from %d back to %d", start, p.start)
				}
				start = p.start
			},
		})
	})
}
