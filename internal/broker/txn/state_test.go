package txn

import (
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// The producer of these tables wrote at (7, 4); (9, 0) is what follows where 4
// is the last epoch.
const (
	pid   = int64(7)
	fresh = int64(9)
)

// at is the coordinator's state after the transaction of (7, 4) ended or did
// not; last puts it at the last epoch, with a new producer id afterwards.
func at(status Status, epoch int16) identity {
	x := identity{status: status, id: pid, epoch: epoch, prevID: -1, prevEpoch: -1}
	if status != Empty && status != Ongoing {
		x.hasPrev, x.prevID, x.prevEpoch = true, pid, epoch
		x.epoch++
		if epoch == lastEpoch {
			x.id, x.epoch = fresh, 0
		}
	}
	return x
}

// The whole of EndTxn v5: states by what the request names and wants. Kafka
// 4.4.0 gave these answers, but for those at the last epoch in an aborted state.
func TestDecideEnd(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	type want struct {
		v    verdict
		code int16
	}
	var (
		wait    = want{refuse, codeConcurrentTransactions}
		fenced  = want{refuse, codeProducerFenced}
		state   = want{refuse, codeInvalidTxnState}
		foreign = want{refuse, codeInvalidProducerIDMapping}
		ends    = want{begin, codeNone}
		again   = want{already, codeNone}
		bumps   = want{bump, codeNone}
	)
	// by the request's epoch: before e, e (the transaction's), after e, two after,
	// and another producer id at e; each for commit and abort
	type row [5][2]want
	both := func(w want) [2]want { return [2]want{w, w} }
	all := func(w want) row { return row{both(w), both(w), both(w), both(w), both(w)} }
	tests := map[Status]row{
		Empty:          {both(fenced), {state, bumps}, both(fenced), both(fenced), both(foreign)},
		Ongoing:        {both(fenced), both(ends), both(fenced), both(fenced), both(foreign)},
		PrepareCommit:  all(wait),
		PrepareAbort:   all(wait),
		CompleteCommit: {both(fenced), {again, state}, {state, bumps}, both(fenced), both(foreign)},
		CompleteAbort:  {both(fenced), {state, again}, {state, bumps}, both(fenced), both(foreign)},
	}
	for status, cells := range tests {
		x := at(status, 4)
		for i, q := range []struct {
			id    int64
			epoch int16
		}{{pid, 3}, {pid, 4}, {pid, 5}, {pid, 6}, {pid + 1, 4}} {
			for j, commit := range []bool{true, false} {
				t.Run(fmt.Sprintf("%v/%d@%d/commit=%v", status, q.id, q.epoch, commit), func(t *testing.T) {
					v, code := decideEnd(x, q.id, q.epoch, commit)
					if got := (want{v, code}); got != cells[i][j] {
						t.Errorf("got %v, want %v", got, cells[i][j])
					}
				})
			}
		}
	}
}

func TestDecideEndAtTheLastEpoch(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	rotated := at(CompleteCommit, lastEpoch)
	afterInit := rotated
	afterInit.status = Empty
	nextOpen := rotated
	nextOpen.status, nextOpen.hasPrev = Ongoing, false
	for _, tc := range []struct {
		name   string
		x      identity
		id     int64
		epoch  int16
		commit bool
		v      verdict
		code   int16
	}{
		{"ends", at(Ongoing, lastEpoch), pid, lastEpoch, true, begin, codeNone},
		{"retry while markers are written", at(PrepareCommit, lastEpoch), pid, lastEpoch, true, refuse, codeConcurrentTransactions},
		{"retry", rotated, pid, lastEpoch, true, already, codeNone},
		{"retry with the other result", rotated, pid, lastEpoch, false, refuse, codeInvalidTxnState},
		{"retry after an abort", at(CompleteAbort, lastEpoch), pid, lastEpoch, false, already, codeNone},
		{"old id at another epoch", rotated, pid, lastEpoch - 1, true, refuse, codeInvalidProducerIDMapping},
		{"new id, nothing added, commit", rotated, fresh, 0, true, refuse, codeInvalidTxnState},
		{"new id, nothing added, abort", rotated, fresh, 0, false, bump, codeNone},
		{"retry after InitProducerId", afterInit, pid, lastEpoch, true, refuse, codeProducerFenced},
		{"retry while the next is open", nextOpen, pid, lastEpoch, true, refuse, codeInvalidProducerIDMapping},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if v, code := decideEnd(tc.x, tc.id, tc.epoch, tc.commit); v != tc.v || code != tc.code {
				t.Errorf("got %v %d, want %v %d", v, code, tc.v, tc.code)
			}
		})
	}
}

func TestDecideAdd(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for status := Empty; status <= CompleteAbort; status++ {
		x := at(status, 4)
		for _, tc := range []struct {
			name  string
			id    int64
			epoch int16
			code  int16
		}{
			{"present", x.id, x.epoch, codeNone},
			{"older", x.id, x.epoch - 1, codeProducerFenced},
			{"newer", x.id, x.epoch + 1, codeProducerFenced},
			{"another id", x.id + 1, x.epoch, codeInvalidProducerIDMapping},
		} {
			want := tc.code
			if status.preparing() {
				want = codeConcurrentTransactions
			}
			if code := decideAdd(x, tc.id, tc.epoch); code != want {
				t.Errorf("%v, %s: code %d, want %d", status, tc.name, code, want)
			}
		}
	}
}

func TestDecideInit(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	made := identity{id: pid, epoch: -1}
	claimed := at(Empty, 5) // InitProducerId named (7, 4)
	claimed.hasPrev, claimed.prevID, claimed.prevEpoch = true, pid, 4
	for _, tc := range []struct {
		name  string
		x     identity
		id    int64
		epoch int16
		v     initVerdict
		code  int16
	}{
		{"first", made, -1, -1, initBump, codeNone},
		{"first, with a claim of old times", made, 3, 8, initBump, codeNone},
		{"no claim", at(Empty, 4), -1, -1, initBump, codeNone},
		{"no claim after a commit", at(CompleteCommit, 4), -1, -1, initBump, codeNone},
		{"no claim fences", at(Ongoing, 4), -1, -1, initFence, codeConcurrentTransactions},
		{"claim of the present", at(Empty, 4), pid, 4, initBump, codeNone},
		{"claim of an older", at(Empty, 4), pid, 3, initRefuse, codeProducerFenced},
		{"claim of a newer", at(Empty, 4), pid, 5, initRefuse, codeProducerFenced},
		{"claim of another id", at(Empty, 4), pid + 1, 4, initRefuse, codeProducerFenced},
		{"claim again, the answer was lost", claimed, pid, 4, initRepeat, codeNone},
		{"claim after the answer to EndTxn was lost", at(CompleteCommit, 4), pid, 4, initRepeat, codeNone},
		{"claim after a timeout", at(CompleteAbort, 4), pid, 4, initRepeat, codeNone},
		{"claim of the old id after the last epoch", at(CompleteCommit, lastEpoch), pid, lastEpoch, initRepeat, codeNone},
		{"claim of the present fences", at(Ongoing, 4), pid, 4, initFence, codeConcurrentTransactions},
		{"claim of an older fences", at(Ongoing, 4), pid, 1, initFence, codeConcurrentTransactions},
		{"claim of another id fences nobody", at(Ongoing, 4), pid + 1, 4, initRefuse, codeProducerFenced},
		{"markers are written", at(PrepareCommit, 4), -1, -1, initRefuse, codeConcurrentTransactions},
		{"markers are written, another id", at(PrepareAbort, 4), pid + 1, 4, initRefuse, codeConcurrentTransactions},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if v, code := decideInit(tc.x, tc.id, tc.epoch); v != tc.v || code != tc.code {
				t.Errorf("got %v %d, want %v %d", v, code, tc.v, tc.code)
			}
		})
	}
}
