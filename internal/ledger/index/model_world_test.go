package index

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/sharetxn/sharetxn/internal/ledger/entry"
)

// The model: a share group, a transaction coordinator and a ledger, as much of
// each as matters here, and members that do what a Processor does with the real
// Index. World is one state; step is what may happen in it.
//
// A set of source offsets is a mask: bit 2*partition+offset.

const (
	parts   = 2
	members = 3
	// cutter is the member that truncates the ledger, where that is done, and
	// takes no records.
	cutter = members
	nobody = -1
	// archived after so many releases; nothing else counts deliveries here.
	releaseLimit = 3
)

type mask uint8

func bit(p, offset int) mask          { return 1 << (2*p + offset) }
func (s mask) in(p int) mask          { return s & (3 << (2 * p)) }
func (s mask) has(p, offset int) bool { return s&bit(p, offset) != 0 }
func (s mask) each(do func(p, o int)) { eachBit(s, do) }
func eachBit(s mask, do func(p, o int)) {
	for ; s != 0; s &= s - 1 {
		i := bits.TrailingZeros8(uint8(s))
		do(i/2, i%2)
	}
}

func (s mask) String() string {
	var all []string
	s.each(func(p, o int) { all = append(all, fmt.Sprintf("%d/%d", p, o)) })
	return "{" + strings.Join(all, " ") + "}"
}

// limits bound a world: how much there is of what would never end, and which
// faults may come how often.
type limits struct {
	name    string
	members int        // that take records; one more truncates
	offsets [parts]int // per source partition, at most 2
	txns    int
	depth   int    // of steps; 0 for all
	prefix  []step // taken before the rest is explored
	// faults
	expire  int // a lock ends while its holder believes in it
	timeout int // the coordinator ends a transaction whose member lives
	lostAck int // a member's acknowledgement after a commit does not arrive
	crash   int
	repeat  int // a marker is written again
	cut     int // a truncation: a copy of the generation, and a deletion
	evict   int // a member is out of the group and does not know
	reset   int // the group's offsets are set to the beginning
	lose    int // a broker loses a marker
	hide    int // and what was committed is hidden by an abort, in place of the repair
}

// policy is what a member does; the zero value is right, each field is a mistake.
type policy struct {
	noCheck       bool // commits without asking the Index
	unreadCommits bool // asks before its own entry was read
	openIsDone    bool // accepts what is undecided
	lookOnce      bool // does not look again at what it waits for
	releases      bool // gives back what is undecided
	anyGeneration bool // goes on in a generation that it did not start in
}

type recordKind uint8

const (
	generationRecord recordKind = iota
	entryRecord
	markerRecord
)

type record struct {
	kind   recordKind
	txn    int8 // of entry and marker
	commit bool
	ahead  int8 // by how much the marker's epoch is
	number int8 // of generation
	phase  entry.Phase
}

// ledgerLog is one ledger partition. Nothing is forgotten, but below start
// nothing can be read.
type ledgerLog struct {
	start   int64
	records []record // never changed in place
}

type txnState uint8

const (
	ongoing txnState = iota
	committed
	aborted
)

type txn struct {
	member   int8
	epoch    int16
	gen      int8
	covers   mask
	state    txnState
	produced [parts]bool
	at       [parts]int8 // of its entries
	marks    [parts]bool // still to be written
	lost     [parts]bool // and not yet repaired
}

type phase uint8

const (
	idle    phase = iota // nothing in hand
	holding              // records in hand, no transaction
	begun                // entries being produced
	refused              // the check said no: to be aborted
	checked              // may commit
	ended                // committed, to be acknowledged
	stopped              // to be started again
)

type member struct {
	phase  phase
	fresh  bool // has done nothing yet: like all others that are
	zombie bool // out of the group
	gen    int8
	txn    int8
	epoch  int16
	hand   mask // what it believes to hold
	work   mask // of it, what the transaction decides
	looked mask // of it, what was found undecided
	views  [parts]*view
	starts [parts]startRead
	copied [parts]bool // a truncation has begun
}

// startRead is a share-partition start that was read and not yet told.
type startRead struct {
	valid            bool
	value, asOf, end int8
}

type world struct {
	limits   *limits
	policy   policy
	left     limits // of faults: what may still come
	logs     [parts]ledgerLog
	owner    [parts][2]int8
	acked    mask
	releases [parts][2]int8
	gen      int8 // of the group's offsets
	resets   int8 // how far a reset is: 0 none, 1 written, 2 offsets set
	txns     []txn
	members  [members + 1]member
	hidden   bool // an abort has hidden what is committed
	halted   bool // and somebody has read it: all stop
	wrong    string
}

func newWorld(l *limits, p policy) *world {
	w := &world{limits: l, policy: p, left: *l, gen: 1}
	for i := range w.logs {
		w.logs[i].records = []record{{kind: generationRecord, number: 1, phase: entry.Active}}
		w.owner[i] = [2]int8{nobody, nobody}
	}
	for m := range w.members {
		w.load(m)
		w.members[m].fresh = true
	}
	return w
}

func (w *world) clone() *world {
	n := *w
	n.txns = append([]txn(nil), w.txns...)
	return &n
}

// all is every source offset.
func (w *world) all() (s mask) {
	for p := range parts {
		for o := range w.limits.offsets[p] {
			s |= bit(p, o)
		}
	}
	return s
}

// start is a share partition's start.
func (w *world) start(p int) int8 {
	for o := range w.limits.offsets[p] {
		if !w.acked.has(p, o) {
			return int8(o)
		}
	}
	return int8(w.limits.offsets[p])
}

func (l *ledgerLog) end() int64 { return int64(len(l.records)) }

func (l *ledgerLog) append(r record) int8 {
	l.records = append(l.records[:len(l.records):len(l.records)], r)
	return int8(len(l.records) - 1)
}

// published says whether a transaction of the generation that covers the offset
// has committed.
func (w *world) published(gen int8, p, o int) bool {
	for i := range w.txns {
		if t := &w.txns[i]; t.state == committed && t.gen == gen && t.covers.has(p, o) {
			return true
		}
	}
	return false
}

// done: every offset is acknowledged, and nobody has a transaction to end.
func (w *world) done() bool { return w.acked == w.all() }

// violate notes the first rule that is broken.
func (w *world) violate(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// topicID is the one source topic.
var topicID = [16]byte{1}

// read tells a view what follows in its ledger partition.
func (w *world) read(m, p int) {
	log := &w.logs[p]
	v, err := w.members[m].views[p].change(func(x *Index) error {
		if x.Next() < log.start {
			if err := x.Gap(log.start); err != nil {
				return err
			}
		}
		for at := x.Next(); at < log.end(); at++ {
			r := log.records[at]
			var err error
			switch r.kind {
			case generationRecord:
				err = x.Generation(at, entry.Generation{Number: int64(r.number), Phase: r.phase, Guarantee: "ledger", Group: "g"})
			case entryRecord:
				t := &w.txns[r.txn]
				e := entry.Entry{Generation: int64(t.gen), TransactionalID: "id", TopicID: topicID, Partition: int32(p)}
				t.covers.in(p).each(func(_, o int) { e.Ranges = append(e.Ranges, entry.Range{First: int64(o), Last: int64(o)}) })
				err = x.Entry(at, Producer{int64(t.member), t.epoch}, e)
			case markerRecord:
				t := &w.txns[r.txn]
				err = x.Marker(at, Producer{int64(t.member), t.epoch + int16(r.ahead)}, r.commit)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if _, epoch := errors.AsType[*EpochError](err); epoch && w.hidden {
		w.halted = true
	} else if err != nil {
		w.violate("the log cannot be read: %v", err)
	}
	w.members[m].views[p] = v
}

// load makes a member what it is after its start: it has read the ledger, and
// knows its generation. It reports whether it may work.
func (w *world) load(m int) bool {
	old := &w.members[m]
	next := member{epoch: old.epoch, txn: nobody}
	for p := range parts {
		x := New("g", int32(p), w.logs[p].start)
		next.views[p] = &view{x, x.fingerprint()}
	}
	w.members[m] = next
	for p := range parts {
		w.read(m, p)
		g, err := w.members[m].views[p].Current()
		if err != nil {
			w.violate("no generation in partition %d after loading: %v", p, err)
			return false
		}
		if g.Phase != entry.Active || p > 0 && int8(g.Number) != w.members[m].gen {
			return false
		}
		w.members[m].gen = int8(g.Number)
	}
	return true
}
