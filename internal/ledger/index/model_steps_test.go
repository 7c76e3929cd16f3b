package index

import (
	"encoding/json"
	"fmt"

	"github.com/sharetxn/sharetxn/internal/ledger/entry"
)

type stepKind uint8

// What may happen. From expireLock on they are faults: what goes well does not
// need them.
const (
	acquire    stepKind = iota
	readLedger          // by a member, to the end of a ledger partition
	look                // at all in hand; a transaction begins for what is fresh
	forget              // what is not held any more
	produce             // an entry
	check
	commit
	settle
	writeMarker
	repairMarker // that was lost, when the transaction is over
	orphanLock   // ends, of a record that its holder does not know of any more
	orphanTxn    // is ended by the coordinator
	readStart    // of a share partition
	tellStart    // to the Index
	restart      // a member that has stopped, or is out of the group
	setOffsets   // the second part of a reset
	endReset     // and the third
	copyRecord   // of the generation: the first part of a truncation
	deleteBelow  // what the Index says: the second
	expireLock
	timeoutTxn
	loseAck
	crash
	repeatMarker
	evict
	beginReset
	loseMarker
	hideMarker // an abort ends what was committed
	stepKinds
)

var stepNames = [stepKinds]string{
	"acquires", "reads ledger partition", "looks", "forgets what it does not hold", "produces its entry of partition", "checks", "commits",
	"acknowledges", "marker of transaction", "marker is repaired of transaction", "ends: lock of an offset in partition", "is ended by the coordinator: transaction", "reads the start of partition",
	"is told the start of partition", "starts again", "offsets are set to the beginning", "generation is active", "copies the generation record in partition",
	"deletes what its Index lets go in partition", "loses its locks in partition", "is ended by the coordinator though its member lives: transaction",
	"acknowledges, and it is lost", "crashes", "marker is written again of transaction", "is out of the group and does not know", "reset begins",
	"marker is lost of transaction", "an abort hides the commit of transaction",
}

// step is one of them: who, in which partition, and of which transaction, offset
// or set of offsets.
type step struct {
	kind    stepKind
	m, p, n int8
}

// MarshalJSON and UnmarshalJSON carry a step between processes.
func (s step) MarshalJSON() ([]byte, error) {
	return json.Marshal([4]int8{int8(s.kind), s.m, s.p, s.n})
}

func (s *step) UnmarshalJSON(text []byte) error {
	var f [4]int8
	err := json.Unmarshal(text, &f)
	*s = step{stepKind(f[0]), f[1], f[2], f[3]}
	return err
}

func (s step) fault() bool { return s.kind >= copyRecord && s.kind != deleteBelow }

func (s step) String() string {
	name := stepNames[s.kind]
	switch s.kind {
	case acquire:
		return fmt.Sprintf("member %d %s %v", s.m, name, mask(s.n))
	case readLedger, produce, readStart, tellStart, copyRecord, deleteBelow, expireLock:
		return fmt.Sprintf("member %d %s %d", s.m, name, s.p)
	case writeMarker, repeatMarker, repairMarker, loseMarker, hideMarker:
		return fmt.Sprintf("%s %d in partition %d", name, s.n, s.p)
	case orphanTxn, timeoutTxn:
		return fmt.Sprintf("%s %d", name, s.n)
	case orphanLock:
		return fmt.Sprintf("%s %d: %d", name, s.p, s.n)
	case setOffsets, endReset, beginReset:
		return name
	}
	return fmt.Sprintf("member %d %s", s.m, name)
}

// steps lists what may happen in w.
func (w *world) steps() (all []step) {
	add := func(k stepKind, m, p, n int) { all = append(all, step{k, int8(m), int8(p), int8(n)}) }
	if w.halted {
		return nil
	}
	freshSeen := false
	for m := range w.limits.members {
		mb := &w.members[m]
		if mb.fresh {
			if freshSeen {
				continue // as good as the one before
			}
			freshSeen = true
		}
		w.memberSteps(m, mb, add)
	}
	for p := range parts {
		if w.members[cutter].copied[p] {
			add(deleteBelow, cutter, p, 0)
		} else if w.left.cut > 0 && w.limits.offsets[p] > 0 {
			add(copyRecord, cutter, p, 0)
		}
	}
	for i := range w.txns {
		t := &w.txns[i]
		drives := w.members[t.member].txn == int8(i) && w.members[t.member].phase != stopped
		if t.state == ongoing {
			if !drives {
				add(orphanTxn, 0, 0, i)
			} else if w.left.timeout > 0 {
				add(timeoutTxn, 0, 0, i)
			}
		}
		for p := range parts {
			if t.lost[p] && t.marks == [parts]bool{} {
				add(repairMarker, 0, p, i)
				if t.state == committed && w.left.hide > 0 {
					add(hideMarker, 0, p, i)
				}
			}
			if t.marks[p] {
				add(writeMarker, 0, p, i)
				if w.left.lose > 0 {
					add(loseMarker, 0, p, i)
				}
			} else if t.state != ongoing && t.produced[p] && w.left.repeat > 0 {
				add(repeatMarker, 0, p, i)
			}
		}
	}
	(w.all() &^ w.acked).each(func(p, o int) {
		if m := w.owner[p][o]; m != nobody && !w.members[m].hand.has(p, o) {
			add(orphanLock, 0, p, o)
		}
	})
	switch w.resets {
	case 1:
		add(setOffsets, 0, 0, 0)
	case 2:
		add(endReset, 0, 0, 0)
	default:
		if w.left.reset > 0 && w.groupEmpty() {
			add(beginReset, 0, 0, 0)
		}
	}
	return all
}

// groupEmpty: whoever is not idle is out of the group.
func (w *world) groupEmpty() bool {
	for m := range w.limits.members {
		if mb := &w.members[m]; !mb.zombie && mb.phase != idle && mb.phase != stopped {
			return false
		}
	}
	return true
}

func (w *world) memberSteps(m int, mb *member, add func(k stepKind, m, p, n int)) {
	if mb.phase == stopped || mb.zombie && mb.phase == idle {
		if w.resets == 0 {
			add(restart, m, 0, 0)
		}
		return
	}
	for p := range parts {
		v, log := mb.views[p], &w.logs[p]
		if v.Next() < log.end() && w.reads(mb, p) {
			add(readLedger, m, p, 0)
		}
		if w.limits.cut == 0 || mb.hand.in(p) == 0 {
			continue
		}
		if mb.starts[p].valid {
			add(tellStart, m, p, 0)
		} else if s := v.sources[topicID]; s == nil || s.asOf < max(v.resumed, 0) {
			add(readStart, m, p, 0)
		}
	}
	if mb.hand != 0 {
		if w.left.crash > 0 {
			add(crash, m, 0, 0)
		}
		if w.left.evict > 0 && !mb.zombie {
			add(evict, m, 0, 0)
		}
		for p := range parts {
			if w.left.expire > 0 && w.held(m, mb.hand.in(p)) != 0 {
				add(expireLock, m, p, 0)
			}
		}
	}
	switch mb.phase {
	case idle:
		if w.resets == 0 {
			w.acquirable(m, add)
		}
	case holding:
		add(look, m, 0, 0)
		if w.held(m, mb.hand) != mb.hand {
			add(forget, m, 0, 0)
		}
	case begun:
		t := &w.txns[mb.txn]
		all := true
		for p := range parts {
			if t.covers.in(p) != 0 && !t.produced[p] {
				all = false
				if t.state != ongoing || w.quiet(int(mb.txn)) {
					add(produce, m, p, 0)
				}
			}
		}
		if all && w.checkable(m) {
			add(check, m, 0, 0)
		}
	case checked:
		add(commit, m, 0, 0)
	case ended:
		add(settle, m, 0, 0)
		if w.left.lostAck > 0 {
			add(loseAck, m, 0, 0)
		}
	}
}

// reads: a member reads when it has something to ask. What it would have read
// before, it reads then; and what it asks of an older view, an idle one had.
func (w *world) reads(mb *member, p int) bool {
	switch mb.phase {
	case holding:
		return mb.hand.in(p) != 0
	case begun:
		return w.txns[mb.txn].produced[p]
	}
	return false
}

// held is what of s a member really holds.
func (w *world) held(m int, s mask) (really mask) {
	s.each(func(p, o int) {
		if w.owner[p][o] == int8(m) {
			really |= bit(p, o)
		}
	})
	return really
}

// acquirable lists what a member may be handed out: of one source partition or
// of both, or one record alone.
func (w *world) acquirable(m int, add func(k stepKind, m, p, n int)) {
	var free mask
	(w.all() &^ w.acked).each(func(p, o int) {
		if w.owner[p][o] == nobody {
			free |= bit(p, o)
		}
	})
	offered := make(map[mask]bool)
	for _, s := range []mask{free, free.in(0), free.in(1), free & -free} {
		if s != 0 && !offered[s] {
			offered[s] = true
			add(acquire, m, 0, int(s))
		}
	}
}

// quiet: the markers of all transactions of the same producer before are written,
// or the coordinator would have it wait.
func (w *world) quiet(i int) bool {
	for j := range i {
		if t := &w.txns[j]; t.member == w.txns[i].member && (t.state == ongoing || t.marks != [parts]bool{} || t.lost != [parts]bool{}) {
			return false
		}
	}
	return true
}

// checkable: the Index has read past all own entries.
func (w *world) checkable(m int) bool {
	if w.policy.noCheck || w.policy.unreadCommits {
		return true
	}
	mb := &w.members[m]
	for p := range parts {
		if t := &w.txns[mb.txn]; t.produced[p] && mb.views[p].Next() <= int64(t.at[p]) {
			return false
		}
	}
	return true
}

// take does a step; w.wrong says what it has broken.
func (w *world) take(s step) {
	m, p, n := int(s.m), int(s.p), int(s.n)
	mb := &w.members[m]
	switch s.kind {
	case acquire:
		mb.fresh = false
		mb.hand, mb.phase = mask(n), holding
		mb.hand.each(func(p, o int) { w.owner[p][o] = s.m })
	case readLedger:
		w.read(m, p)
	case look:
		w.look(m)
	case forget:
		mb.hand = w.held(m, mb.hand)
		mb.looked &= mb.hand
		w.rest(mb)
	case produce:
		t := &w.txns[mb.txn]
		if t.state != ongoing {
			w.rest(mb)
			return
		}
		if t.produced == [parts]bool{} {
			t.epoch = mb.epoch
			mb.epoch++
		}
		t.produced[p], t.at[p] = true, w.logs[p].append(record{kind: entryRecord, txn: mb.txn})
	case check:
		w.check(m)
	case commit:
		w.commit(m)
	case settle, loseAck:
		if s.kind == loseAck {
			w.left.lostAck--
		} else {
			w.held(m, mb.work).each(func(p, o int) { w.accept(m, p, o) })
		}
		mb.hand &^= mb.work
		w.rest(mb)
	case writeMarker, repeatMarker:
		t := &w.txns[n]
		t.marks[p] = false
		if s.kind == repeatMarker {
			w.left.repeat--
		}
		w.logs[p].append(record{kind: markerRecord, txn: s.n, commit: t.state == committed, ahead: 1})
	case loseMarker:
		w.left.lose--
		w.txns[n].marks[p], w.txns[n].lost[p] = false, true
	case repairMarker:
		t := &w.txns[n]
		t.lost[p] = false
		r := record{kind: markerRecord, txn: s.n, commit: t.state == committed, ahead: 2}
		if !r.commit {
			r.ahead = 3
		}
		w.logs[p].append(r)
		w.members[t.member].epoch = max(w.members[t.member].epoch, t.epoch+int16(r.ahead))
	case hideMarker:
		t := &w.txns[n]
		w.left.hide--
		t.lost[p], w.hidden = false, true
		w.logs[p].append(record{kind: markerRecord, txn: s.n, ahead: 2})
		w.members[t.member].epoch = max(w.members[t.member].epoch, t.epoch+2)
	case orphanLock:
		w.owner[p][n] = nobody
	case orphanTxn:
		w.end(n, aborted)
	case timeoutTxn:
		w.left.timeout--
		w.end(n, aborted)
	case readStart:
		mb.starts[p] = startRead{true, w.start(p), int8(mb.views[p].Next()), int8(w.logs[p].end())}
	case tellStart:
		w.tellStart(m, p, mb.starts[p])
		mb.starts[p] = startRead{}
	case copyRecord:
		w.left.cut--
		mb.copied[p] = true
		w.read(m, p)
		g, _ := mb.views[p].Current()
		w.logs[p].append(record{kind: generationRecord, number: int8(g.Number), phase: g.Phase})
		w.read(m, p)
		asOf := mb.views[p].Next()
		w.tellStart(m, p, startRead{true, w.start(p), int8(asOf), int8(asOf)})
	case deleteBelow:
		mb.copied[p] = false
		w.logs[p].start = max(w.logs[p].start, mb.views[p].Keep())
	case expireLock:
		w.left.expire--
		w.loseLocks(m, mb.hand.in(p))
	case crash:
		w.left.crash--
		*mb = member{phase: stopped, epoch: mb.epoch, txn: nobody, views: mb.views}
	case restart:
		if !w.load(m) {
			mb.phase = stopped
		}
	case evict:
		w.left.evict--
		mb.zombie = true
		w.loseLocks(m, w.all())
	case beginReset:
		w.left.reset--
		w.resets = 1
		for m := range w.limits.members {
			if mb := &w.members[m]; mb.phase == idle {
				mb.phase, mb.fresh = stopped, false
			}
		}
		for p := range w.logs {
			w.logs[p].append(record{kind: generationRecord, number: w.gen + 1, phase: entry.Resetting})
		}
	case setOffsets:
		w.resets, w.acked = 2, 0
		w.gen++
		for p := range w.owner {
			w.owner[p] = [2]int8{nobody, nobody}
		}
	case endReset:
		w.resets = 0
		for p := range w.logs {
			w.logs[p].append(record{kind: generationRecord, number: w.gen, phase: entry.Active})
		}
	}
}

func (w *world) tellStart(m, p int, r startRead) {
	v := &w.members[m].views[p]
	*v, _ = (*v).change(func(x *Index) error {
		x.Start(topicID, int64(r.value), int64(r.asOf), int64(r.end))
		return nil
	})
}

// rest is a member without a transaction.
func (w *world) rest(mb *member) {
	mb.work, mb.txn = 0, nobody
	mb.phase = holding
	if mb.hand == 0 {
		mb.phase = idle
	}
}

func (w *world) loseLocks(m int, s mask) {
	w.held(m, s).each(func(p, o int) { w.owner[p][o] = nobody })
}

// accept is an acknowledgement of a record that the member holds.
func (w *world) accept(m, p, o int) {
	if !w.published(w.gen, p, o) {
		w.violate("lost: member %d accepts offset %d/%d, and no transaction that covers it has committed in generation %d", m, p, o, w.gen)
	}
	w.acked |= bit(p, o)
	w.owner[p][o] = nobody
}

// end is the coordinator's; a transaction that has ended stays as it is.
func (w *world) end(i int, how txnState) {
	if t := &w.txns[i]; t.state == ongoing {
		t.state, t.marks = how, t.produced
	}
}

// stop is a member that may not go on in this generation: it holds nothing and
// does nothing more.
func (w *world) stop(mb *member) {
	mb.phase, mb.txn, mb.hand, mb.work, mb.looked = stopped, nobody, 0, 0, 0
}

// stale reports whether a view shows another generation than the member's.
func (w *world) stale(mb *member) bool {
	for _, v := range mb.views {
		if g, err := v.Current(); err == nil && (int8(g.Number) != mb.gen || g.Phase != entry.Active) {
			return true
		}
	}
	return false
}

// look is a member's look at what it has in hand.
func (w *world) look(m int) {
	mb := &w.members[m]
	if w.stale(mb) && !w.policy.anyGeneration {
		w.stop(mb)
		return
	}
	var fresh mask
	see := mb.hand
	if w.policy.lookOnce {
		see &^= mb.looked
	}
	see.each(func(p, o int) {
		b := bit(p, o)
		v := mb.views[p].Look(topicID, int64(o))
		if v == Open && w.policy.openIsDone {
			v = Done
		}
		switch v {
		case Fresh:
			fresh |= b
		case Done:
			mb.hand &^= b
			if w.owner[p][o] == int8(m) {
				w.accept(m, p, o)
			}
		case Below:
			mb.hand &^= b
		case Open, Unsure:
			mb.looked |= b
			if v == Open && w.policy.releases {
				w.release(m, p, o)
			}
		}
	})
	mb.looked &= mb.hand
	w.rest(mb)
	if fresh == 0 || len(w.txns) == w.limits.txns {
		return
	}
	mb.txn = int8(len(w.txns))
	w.txns = append(w.txns, txn{member: int8(m), gen: mb.gen, covers: fresh})
	mb.phase, mb.work = begun, fresh
}

// release gives a record back, which the broker counts.
func (w *world) release(m, p, o int) {
	mb := &w.members[m]
	mb.hand &^= bit(p, o)
	if w.owner[p][o] != int8(m) {
		return
	}
	w.owner[p][o] = nobody
	if w.releases[p][o]++; w.releases[p][o] == releaseLimit && !w.published(w.gen, p, o) {
		w.violate("lost: offset %d/%d is archived after %d releases, and no transaction that covers it has committed", p, o, releaseLimit)
	}
}

func (w *world) check(m int) {
	mb := &w.members[m]
	t := &w.txns[mb.txn]
	kind := Commit
	for p := range parts {
		if !t.produced[p] || w.policy.noCheck {
			continue
		}
		switch d := mb.views[p].Decide(int64(t.at[p]), Producer{int64(m), t.epoch}); d.Kind {
		case Unread:
			if !w.policy.unreadCommits {
				w.violate("the check ran before the entry was read")
			}
		case Stale:
			if !w.policy.anyGeneration {
				kind = Stale
			}
		case Conflict, Ended:
			if kind != Stale {
				kind = d.Kind
			}
		}
	}
	switch kind {
	case Commit:
		mb.phase = checked
	case Stale:
		w.stop(mb)
	default:
		w.end(int(mb.txn), aborted)
		w.rest(mb)
	}
}

func (w *world) commit(m int) {
	mb := &w.members[m]
	t := &w.txns[mb.txn]
	if t.state != ongoing {
		w.rest(mb)
		return
	}
	t.covers.each(func(p, o int) {
		if w.published(t.gen, p, o) {
			w.violate("published twice: transaction %d of member %d commits offset %d/%d, which has committed before in generation %d", mb.txn, m, p, o, t.gen)
		}
	})
	w.end(int(mb.txn), committed)
	mb.phase = ended
}
