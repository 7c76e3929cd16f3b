package check

import (
	"slices"
	"strings"
	"time"
)

// claim is that a transaction decides a record: staged it, has an entry for it
// in the ledger, or published an output of it.
type claim struct {
	by         Txn
	verdict    Verdict
	lost       Loss  // staged no more when the transaction ended
	delivery   int   // which delivery it was of, by the line
	generation int64 // of the ledger
}

// record is a source record's way through the group, from a reset of the group to
// the next.
type record struct {
	state      State
	count      int // deliveries, as the group counts them
	miscounted bool
	claims     []claim
	accepted   int // plainly: the line; 0 if not
	rejected   int
	atLimit    bool  // archived since its deliveries were used up
	astray     bool  // its acknowledgement went another way than its transaction
	delivered  int   // line of the latest delivery
	ghosts     []int // lines of deliveries that ended without their holder's act: it may not know yet
	failed     int   // verdicts of handlers
	source     *Source
	outputs    []*Visible // that name it, dead letters apart
	letters    []*Visible
	until      int // line of the reset that set it back; 0: none did
}

// transaction is all that is known of one.
type transaction struct {
	Txn
	id       string
	ended    int // line of the decision; 0: none
	commit   bool
	acks     int64 // offsets that it staged or has entries for, of any group
	ours     bool  // of the group that is judged too
	produced []Range
	visible  int // records
	reports  []report
}

// report is what a client was told.
type report struct {
	Reported
	line int
}

// story is a history, put together by what it is about.
type story struct {
	*History
	linked  bool // claims are made by outputs
	records map[Place]map[int64]*record
	past    map[Place]map[int64][]*record // before resets
	resets  map[Place]reset               // the latest
	givenUp map[Place]reset               // those to -1 that no start has followed yet
	newest  int64                         // generation of the ledger
	txns    map[Txn]*transaction
	visible map[Place]map[int64]*Visible
	logs    map[Place]Log
	shares  map[Place]Share
	sources []Source
	readers map[string]map[Place]*readings // by name
	names   map[int64]string               // of operations: transactional ids
	zombies []zombie
	calm    []pause
	told    map[string]bool // event names seen
}

// readings are what one reader had of a partition.
type readings struct {
	records []Read
	reached int64 // it passed all below
}

// unset is the Offset of a Reset that leaves the start to the group's policy.
const unset = -1

// reset is what is left of a Reset.
type reset struct {
	start      int64
	line       int
	generation int64 // of the ledger, the newest before
}

// zombie is a commit for a fenced producer.
type zombie struct {
	by    Ended
	fence Txn
}

// pause is from a Calm to its Drained.
type pause struct {
	from, to time.Time
	drained  bool
}

func fold(h *History) *story {
	s := &story{
		History: h, records: make(map[Place]map[int64]*record), past: make(map[Place]map[int64][]*record), resets: make(map[Place]reset), givenUp: make(map[Place]reset), txns: make(map[Txn]*transaction), visible: make(map[Place]map[int64]*Visible),
		logs: make(map[Place]Log), shares: make(map[Place]Share), readers: make(map[string]map[Place]*readings), names: make(map[int64]string),
		told: make(map[string]bool),
	}
	for _, l := range h.Lines {
		s.told[eventName(l.Event)] = true
	}
	s.linked = h.Guarantee == GuaranteeAckAfterCommit || !h.Observed && !s.told["staged"] && !s.told["entry"]
	var fences fences
	for i, l := range h.Lines {
		line := i + 1
		switch e := l.Event.(type) {
		case Produced:
			t := s.txn(e.Txn)
			t.produced = append(t.produced, e.Range)
		case Entry:
			s.entry(e, line)
		case Initialised:
			fences.init(e)
		case Ended:
			if fence, fenced := fences.ended(e); fenced {
				s.zombies = append(s.zombies, zombie{e, fence})
			}
			t := s.txn(e.Txn)
			t.id, t.commit, t.ended = e.ID, e.Commit, line
		case Begun:
			s.names[e.Op] = e.ID
		case Reported:
			if e.Txn != nil {
				t := s.txn(*e.Txn)
				t.reports = append(t.reports, report{e, line})
			}
		case Handled:
			if e.Verdict == Fail && s.mine(e.Group) {
				s.record(e.Place, e.Offset).failed++
			}
		case Read:
			r := s.reader(e.Reader, e.Place)
			r.records = append(r.records, e)
		case Reached:
			r := s.reader(e.Reader, e.Place)
			r.reached = max(r.reached, e.Offset)
		case Calm:
			s.calm = append(s.calm, pause{from: l.Time})
		case Drained:
			if n := len(s.calm); n > 0 && !s.calm[n-1].drained {
				s.calm[n-1].to, s.calm[n-1].drained = l.Time, true
			}
		case Reset:
			s.reset(e.Place, reset{e.Offset, line, s.newest})
		case Started:
			if r, ok := s.givenUp[e.Place]; ok {
				r.start = e.Offset
				s.reset(e.Place, r)
			}
		case Source, Visible: // below, since they may stand before what they belong to
		case Log:
			s.logs[e.Place] = e
		case Share:
			s.shares[e.Place] = e
		default:
			s.turn(e, line)
		}
	}
	for _, l := range h.Lines {
		switch e := l.Event.(type) {
		case Source:
			s.sources = append(s.sources, e)
			for o := e.First; o <= e.Last; o++ {
				s.record(e.Place, o)
				for _, r := range s.rounds(e.Place, o) {
					r.source = &e
				}
			}
		case Visible:
			s.see(e)
		}
	}
	return s
}

// reset begins the way of a partition's records anew, once it is known from where.
func (s *story) reset(p Place, to reset) {
	if to.start == unset {
		s.givenUp[p] = to
		return
	}
	delete(s.givenUp, p)
	s.resets[p] = to
	if s.past[p] == nil {
		s.past[p] = make(map[int64][]*record)
	}
	for o, r := range s.records[p] {
		if o >= to.start {
			r.until = to.line
			s.past[p][o] = append(s.past[p][o], r)
			s.records[p][o] = &record{state: Available}
		}
	}
}

// rounds gives a record's way before each reset, and after the last.
func (s *story) rounds(p Place, offset int64) []*record {
	all := slices.Clone(s.past[p][offset])
	if r := s.records[p][offset]; r != nil {
		all = append(all, r)
	}
	return all
}

// before gives the record's way, before a reset or after the last, in which a
// transaction worked on it: as it claims, or else as it ended.
func (s *story) before(p Place, offset int64, t *transaction) *record {
	for _, r := range s.rounds(p, offset) {
		if r.claimed(t.Txn) >= 0 {
			return r
		}
	}
	for _, r := range s.past[p][offset] {
		if t.ended > 0 && t.ended < r.until {
			return r
		}
	}
	return s.record(p, offset)
}

func (s *story) reader(name string, p Place) *readings {
	if s.readers[name] == nil {
		s.readers[name] = make(map[Place]*readings)
	}
	if s.readers[name][p] == nil {
		s.readers[name][p] = &readings{}
	}
	return s.readers[name][p]
}

func (s *story) txn(k Txn) *transaction {
	t := s.txns[k]
	if t == nil {
		t = &transaction{Txn: k}
		s.txns[k] = t
	}
	return t
}

func (s *story) record(p Place, offset int64) *record {
	if s.records[p] == nil {
		s.records[p] = make(map[int64]*record)
	}
	r := s.records[p][offset]
	if r == nil {
		r = &record{}
		s.records[p][offset] = r
	}
	return r
}

// mine tells whether a group's name is that of the group that is judged.
func (s *story) mine(group string) bool { return group == "" || group == s.Group }

func (s *story) entry(e Entry, line int) {
	t := s.txn(e.Txn)
	t.acks += e.Last - e.First + 1
	if !s.mine(e.Group) {
		return
	}
	t.ours = true
	s.newest = max(s.newest, e.Generation)
	set, ok := s.resets[e.Place]
	older := ok && e.Generation <= set.generation
	for o := e.First; o <= e.Last; o++ {
		r := s.record(e.Place, o)
		if before := s.past[e.Place][o]; older && len(before) > 0 {
			r = before[len(before)-1]
		}
		r.claim(claim{by: e.Txn, verdict: Accept, delivery: r.delivered, generation: e.Generation})
	}
}

// see takes a visible record in. Where nothing else tells what a transaction
// decides, its outputs do.
func (s *story) see(v Visible) {
	if s.visible[v.Place] == nil {
		s.visible[v.Place] = make(map[int64]*Visible)
	}
	for o := v.First; o <= v.Last; o++ {
		s.visible[v.Place][o] = &v
	}
	if v.Txn != nil {
		s.txn(*v.Txn).visible += int(v.Last - v.First + 1)
	}
	if v.From == nil {
		return
	}
	r, dead := s.record(v.From.Place, v.From.Offset), slices.Contains(s.DeadLetters, v.Topic)
	if v.Txn != nil {
		r = s.before(v.From.Place, v.From.Offset, s.txn(*v.Txn))
	}
	if dead {
		r.letters = append(r.letters, &v)
	} else {
		r.outputs = append(r.outputs, &v)
	}
	if !s.linked || v.Txn == nil {
		return
	}
	t := s.txn(*v.Txn)
	t.ours = true
	verdict := Accept
	if dead {
		verdict = Reject
	}
	r.claim(claim{by: *v.Txn, verdict: verdict, delivery: r.delivered})
}

// turnOf is what share events have in common; zero of others.
func turnOf(e Event) Turn {
	switch e := e.(type) {
	case Delivered:
		return e.Turn
	case Staged:
		return e.Turn
	case Unstaged:
		return e.Turn
	case Resolved:
		return e.Turn
	case Lost:
		return e.Turn
	case Decided:
		return e.Turn
	case Expired:
		return e.Turn
	case Released:
		return e.Turn
	case Forgotten:
		return e.Turn
	}
	return Turn{}
}

// turn takes a share event in.
func (s *story) turn(e Event, line int) {
	at := turnOf(e)
	var t *transaction
	switch e := e.(type) {
	case Staged:
		t = s.txn(e.Txn)
		t.acks += e.Last - e.First + 1
	case Unstaged:
		t = s.txn(e.Txn)
		t.acks -= e.Last - e.First + 1
	case Resolved:
		t = s.txn(e.Txn)
	case Lost:
		t = s.txn(e.Txn)
	}
	if !s.mine(at.Group) {
		return
	}
	commit := false
	if t != nil {
		t.ours, commit = true, t.commit
	}
	for o := at.First; o <= at.Last; o++ {
		s.record(at.Place, o).see(e, at, line, commit)
	}
}

// claim adds a claim; a repetition of one is none.
func (r *record) claim(c claim) {
	if i := r.claimed(c.by); i >= 0 {
		if c.verdict == Reject { // a dead letter says more than an output
			r.claims[i].verdict = Reject
		}
		return
	}
	r.claims = append(r.claims, c)
}

func (r *record) claimed(by Txn) int {
	return slices.IndexFunc(r.claims, func(c claim) bool { return c.by == by })
}

// see takes one event into the record's way. commit is what was decided of the
// event's transaction.
func (r *record) see(e Event, at Turn, line int, commit bool) {
	switch e := e.(type) {
	case Delivered:
		r.miscounted = r.miscounted || at.Count != r.count+1
		r.delivered = line
	case Staged:
		if i := r.claimed(e.Txn); i >= 0 {
			r.claims[i].lost = ""
		} else {
			r.claims = append(r.claims, claim{by: e.Txn, verdict: e.Verdict, delivery: r.delivered})
		}
	case Unstaged:
		r.claims = slices.DeleteFunc(r.claims, func(c claim) bool { return c.by == e.Txn })
	case Lost:
		if i := r.claimed(e.Txn); i >= 0 {
			r.claims[i].lost = e.Why
		}
		r.ghosts = append(r.ghosts, r.delivered)
	case Resolved:
		r.astray = r.astray || r.claimed(e.Txn) < 0 || commit != at.To.done()
	case Decided:
		switch e.Verdict {
		case Accept:
			r.accepted = line
		case Reject:
			r.rejected = line
		}
	case Expired, Forgotten:
		r.ghosts = append(r.ghosts, r.delivered)
	}
	switch e.(type) {
	case Expired, Released, Lost:
		r.atLimit = r.atLimit || at.To == Archived
	}
	r.count, r.state = at.Count, at.To
}

// committed gives the claims of transactions that committed: by their decision,
// or else by what is visible of them.
func (s *story) committed(r *record) []claim {
	return slices.DeleteFunc(slices.Clone(r.claims), func(c claim) bool { return !s.txns[c.by].committed() })
}

func (t *transaction) committed() bool { return t.commit || t.ended == 0 && t.visible > 0 }

// places gives the share partitions and sources that the history tells of.
func (s *story) places() []Place {
	all := make(map[Place]bool)
	for p := range s.records {
		all[p] = true
	}
	for p := range s.shares {
		all[p] = true
	}
	out := make([]Place, 0, len(all))
	for p := range all {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Place) int {
		if a.Topic != b.Topic {
			return strings.Compare(a.Topic, b.Topic)
		}
		return int(a.Partition - b.Partition)
	})
	return out
}
