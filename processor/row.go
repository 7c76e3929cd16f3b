package processor

import (
	"context"
	"sync"
	"time"
)

// A Handler that is quick is called for several records in a row by one goroutine:
// one by one, each would cost the scheduler and the member's loop more than it
// costs the handler. How many follows from how quick it was, so the records of one
// that is slow are spread over Concurrency as ever.
const (
	// rowTime is how long a row may take before the loop takes it apart; then only
	// the record under way is left in it, as in a call for it alone.
	rowTime = 2 * time.Millisecond
	// mostRow bounds the records of a row.
	mostRow = 64
	// rowBytes bounds the outputs of a row, which nobody counts before its end.
	rowBytes = 256 << 10
)

// nextRow is how many records the next row has, after one of n, for which last was
// the most: twice as many where all were decided in time, and else as many as were.
func nextRow(last, n, decided int, quick bool) int {
	if quick && decided == n {
		return max(last, min(2*n, mostRow))
	}
	return max(1, decided)
}

// row is how far a call is that handles its items one after another. The call's
// goroutine begins and decides them; the member's loop may take it apart.
type row struct {
	items []*item   // all, never changed
	most  int       // bytes of outputs
	until time.Time // nothing is begun after

	mu      sync.Mutex
	decided []decision // of the first of items, each by itself
	began   time.Time  // the first of all, or the one that was begun last
	ended   time.Time  // over
	bytes   int        // of outputs
	from    int        // of items: those before are the loop's again
	cut     bool       // it was taken apart: none is begun any more
}

func newRow(now time.Time, items []*item, most int) *row {
	return &row{items: items, most: min(most, rowBytes), began: now, until: now.Add(rowTime)}
}

// begin gives the next item to handle, unless there is to be none.
func (r *row) begin(ctx context.Context) (*item, bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.decided)
	if r.cut || n == len(r.items) || n > 0 && (r.bytes >= r.most || !now.Before(r.until) || ctx.Err() != nil) {
		return nil, false
	}
	r.began = now
	return r.items[n], true
}

// decide takes what the item under way came to. alone says that the loop may have
// given it up, since it is in a call by itself.
func (r *row) decide(d decision) (took time.Duration, alone bool) {
	bytes := 0
	for _, o := range d.outputs {
		if o != nil { // if not it fails, later
			bytes += size(o)
		}
	}
	took = time.Since(r.began) // which only this goroutine writes
	r.mu.Lock()
	defer r.mu.Unlock()
	d.records = []int{len(r.decided)}
	r.decided = append(r.decided, d)
	r.bytes += bytes
	return took, r.cut || len(r.items) == 1
}

// rest is what the loop does not have yet, by the items that it has left in the call.
func (r *row) rest() []decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = time.Now()
	rest := r.decided[r.from:]
	for i := range rest {
		rest[i].records[0] = i
	}
	return rest
}

// apart takes the row apart, if it is not over or in parts already: what is decided,
// and which of the items is left in it, and since when.
func (r *row) apart() (decided []decision, left int, began time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut || !r.ended.IsZero() || len(r.decided) == len(r.items) {
		return nil, 0, time.Time{}, false
	}
	r.cut, r.from = true, len(r.decided)
	return r.decided[:r.from:r.from], r.from, r.began, true
}

// quick tells of a row that is over whether it was in time.
func (r *row) quick() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended.Before(r.until)
}
