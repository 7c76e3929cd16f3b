package index

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// explorer visits every world that can be reached, nearest first.
type explorer struct {
	seen   map[[2]uint64]uint32
	seeds  [2]maphash.Seed
	parent []uint32
	by     []step
	edges  [][2]uint32 // by steps that are no faults
	good   []bool      // done, or out of transactions
	queue  []*world
	buf    []byte
	steps  int
	prefix []step
	deep   []uint16
}

// finding is a rule that was broken, and the shortest way there.
type finding struct {
	What  string
	Trace []step
}

func (f *finding) String() string {
	var b strings.Builder
	for i, s := range f.Trace {
		fmt.Fprintf(&b, "%3d. %v\n", i+1, s)
	}
	return b.String() + "     => " + f.What
}

// explore visits all worlds within the limits.
func explore(l *limits, p policy) (*explorer, *finding) {
	e := &explorer{seen: make(map[[2]uint64]uint32), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	first := newWorld(l, p)
	for i, s := range l.prefix {
		if !slices.Contains(first.steps(), s) {
			return e, &finding{fmt.Sprintf("step %d of the prefix cannot be taken", i+1), l.prefix[:i+1]}
		}
		first.take(s)
	}
	e.prefix = l.prefix
	e.visit(first, 0, step{})
	for head := 0; len(e.queue) > 0; head++ {
		w := e.queue[0]
		e.queue[0] = nil
		e.queue = e.queue[1:]
		if l.depth > 0 && int(e.deep[head]) == l.depth {
			e.good[head] = true // nobody knows
			continue
		}
		for _, s := range w.steps() {
			e.steps++
			n := w.clone()
			n.take(s)
			if n.wrong != "" {
				return e, &finding{n.wrong, append(e.trace(uint32(head)), s)}
			}
			to := e.visit(n, uint32(head), s)
			if !s.fault() && to != uint32(head) {
				e.edges = append(e.edges, [2]uint32{uint32(head), to})
			}
		}
	}
	return e, e.stuck()
}

// replay takes the steps as long as they can be taken.
func replay(l *limits, steps []step) *world {
	w := newWorld(l, policy{})
	for _, s := range steps {
		if !slices.Contains(w.steps(), s) || w.wrong != "" {
			break
		}
		w.take(s)
	}
	return w
}

// visit gives the number of w, and puts it in the queue if it is new.
func (e *explorer) visit(w *world, parent uint32, by step) uint32 {
	e.buf = w.appendKey(e.buf[:0])
	key := [2]uint64{maphash.Bytes(e.seeds[0], e.buf), maphash.Bytes(e.seeds[1], e.buf)}
	if n, ok := e.seen[key]; ok {
		return n
	}
	n := uint32(len(e.parent))
	e.seen[key] = n
	depth := uint16(0)
	if n > 0 {
		depth = e.deep[parent] + 1
	}
	e.parent, e.by, e.deep = append(e.parent, parent), append(e.by, by), append(e.deep, depth)
	e.good = append(e.good, w.done() || w.halted || len(w.txns) == w.limits.txns)
	e.queue = append(e.queue, w)
	return n
}

func (e *explorer) trace(to uint32) (all []step) {
	for ; to != 0; to = e.parent[to] {
		all = append([]step{e.by[to]}, all...)
	}
	return append(slices.Clone(e.prefix), all...)
}

// stuck finds a world from which, without further faults, not all records can
// ever be acknowledged.
func (e *explorer) stuck() *finding {
	// Backwards from the good ones.
	from := make([]uint32, len(e.good)+1)
	for _, edge := range e.edges {
		from[edge[1]+1]++
	}
	for i := 1; i < len(from); i++ {
		from[i] += from[i-1]
	}
	back := make([]uint32, len(e.edges))
	next := append([]uint32(nil), from...)
	for _, edge := range e.edges {
		back[next[edge[1]]] = edge[0]
		next[edge[1]]++
	}
	var todo []uint32
	for n, good := range e.good {
		if good {
			todo = append(todo, uint32(n))
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, before := range back[from[n]:from[n+1]] {
			if !e.good[before] {
				e.good[before] = true
				todo = append(todo, before)
			}
		}
	}
	for n, good := range e.good {
		if !good {
			return &finding{"stuck: from here not all records are ever acknowledged", e.trace(uint32(n))}
		}
	}
	return nil
}

// appendKey appends all that what happens next depends on.
func (w *world) appendKey(b []byte) []byte {
	flags := func(fs ...bool) {
		n := byte(0)
		for i, f := range fs {
			if f {
				n |= 1 << i
			}
		}
		b = append(b, n)
	}
	for p := range w.logs {
		log := &w.logs[p]
		b = append(b, byte(log.start), byte(len(log.records)))
		for _, r := range log.records {
			b = append(b, byte(r.kind), byte(r.txn), byte(r.number), byte(r.phase))
			flags(r.commit, r.ahead == 2, r.ahead == 3)
		}
		b = append(b, byte(w.owner[p][0]), byte(w.owner[p][1]), byte(w.releases[p][0]), byte(w.releases[p][1]))
	}
	l := &w.left
	b = append(b, byte(w.acked), byte(w.gen), byte(w.resets), byte(len(w.txns)),
		byte(l.expire), byte(l.timeout), byte(l.lostAck), byte(l.crash), byte(l.repeat), byte(l.cut), byte(l.evict), byte(l.reset), byte(l.lose), byte(l.hide))
	flags(w.hidden, w.halted)
	for i := range w.txns {
		t := &w.txns[i]
		b = append(b, byte(t.member), byte(t.epoch), byte(t.gen), byte(t.covers), byte(t.state), byte(t.at[0]), byte(t.at[1]))
		flags(t.produced[0], t.produced[1], t.marks[0], t.marks[1], t.lost[0], t.lost[1])
	}
	for m := range w.members {
		mb := &w.members[m]
		b = append(b, byte(mb.phase), byte(mb.gen), byte(mb.txn), byte(mb.epoch), byte(mb.hand), byte(mb.work), byte(mb.looked))
		flags(mb.fresh, mb.zombie, mb.copied[0], mb.copied[1], mb.starts[0].valid, mb.starts[1].valid)
		for p := range parts {
			if mb.phase != stopped {
				b = binary.AppendUvarint(b, uint64(len(mb.views[p].print)))
				b = append(b, mb.views[p].print...)
			}
			if s := mb.starts[p]; s.valid {
				b = append(b, byte(s.value), byte(s.asOf), byte(s.end))
			}
		}
	}
	return b
}

// deeperEnv is how many steps more to explore of the worlds that are too large to
// be explored wholly: each takes about half as long again, and memory.
const deeperEnv = "SHARETXN_MODEL_DEEPER"

// worlds are explored with the right rules. Three transactions of three members
// over two source partitions; then faults, each with as many others as fit.
var worlds = []limits{
	{name: "locks end", members: 3, offsets: [parts]int{1, 1}, txns: 3, expire: 1},
	{name: "locks end, more records", members: 3, offsets: [parts]int{2, 1}, txns: 2, expire: 1, depth: 15},
	{name: "transactions time out", members: 3, offsets: [parts]int{1, 1}, txns: 3, expire: 1, timeout: 1, depth: 14},
	{name: "acknowledgements are lost, markers repeated", members: 3, offsets: [parts]int{1, 0}, txns: 3, expire: 1, timeout: 1, lostAck: 1, repeat: 1, depth: 19},
	{name: "markers are lost, repaired, and hidden by an abort", members: 2, offsets: [parts]int{1, 1}, txns: 2, expire: 1, timeout: 1, lose: 2, hide: 1, depth: 15},
	{name: "markers are lost and repaired, and others follow", members: 2, offsets: [parts]int{1, 0}, txns: 3, expire: 1, timeout: 1, lose: 2, hide: 1},
	{name: "members crash", members: 2, offsets: [parts]int{1, 1}, txns: 2, expire: 1, crash: 1, depth: 16},
	{name: "the ledger is truncated", members: 2, offsets: [parts]int{1, 0}, txns: 2, expire: 1, lostAck: 1, cut: 1, depth: 12},
	{name: "the ledger is truncated while a member that lost its lock works on", members: 2, offsets: [parts]int{1, 0}, txns: 2, expire: 1, lostAck: 1, cut: 1, depth: 12,
		prefix: []step{{kind: acquire, n: 1}, {kind: look}, {kind: expireLock}, {kind: acquire, m: 1, n: 1}, {kind: look, m: 1}, {kind: produce, m: 1}, {kind: readLedger, m: 1}, {kind: check, m: 1}}},
	{name: "offsets are reset", members: 2, offsets: [parts]int{1, 0}, txns: 2, expire: 1, evict: 1, reset: 1},
	{name: "offsets are reset and the ledger truncated", members: 2, offsets: [parts]int{1, 0}, txns: 2, evict: 1, reset: 1, cut: 1, depth: 12},
	{name: "offsets are reset and the ledger truncated while a zombie works on", members: 2, offsets: [parts]int{1, 0}, txns: 2, evict: 1, reset: 1, cut: 1, depth: 12,
		prefix: []step{{kind: acquire, n: 1}, {kind: look}, {kind: evict}, {kind: acquire, m: 1, n: 1}, {kind: look, m: 1}, {kind: produce, m: 1}, {kind: readLedger, m: 1},
			{kind: check, m: 1}, {kind: commit, m: 1}, {kind: settle, m: 1}}},
}

func TestModel(t *testing.T) {
	testkit.Deadline(t, 30*time.Minute)
	deeper := 0
	if text := os.Getenv(deeperEnv); text != "" {
		var err error
		if deeper, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", deeperEnv, err)
		}
	}
	for _, l := range worlds {
		if l.depth > 0 {
			l.depth += deeper
		}
		t.Run(l.name, func(t *testing.T) {
			begun := time.Now()
			e, f := explore(&l, policy{})
			if f != nil {
				t.Errorf("\n%v", f)
			}
			t.Logf("%d states, %d steps, up to %d deep, %v", len(e.parent), e.steps, e.deep[len(e.deep)-1], time.Since(begun).Round(time.Millisecond))
		})
	}
}
