package fault

import (
	"fmt"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/txn"
)

// MarkerFault is what happens to some of the markers by which transactions end
// in their partitions: those of logs, and those of staged records. Each partition
// of a transaction has its own.
type MarkerFault struct {
	Name string // in reports; default: made of the rest
	When
	TransactionalID string                // only markers of this id are counted; empty: of any
	Only            func(txn.Marker) bool // only markers that this is true of; nil: all. Must be quick
	Treatment       txn.Treatment
}

func (f MarkerFault) String() string {
	if f.Name != "" {
		return f.Name
	}
	of := ""
	if f.TransactionalID != "" {
		of = " of " + f.TransactionalID
	}
	var what []string
	if f.Treatment.Delay > 0 {
		what = append(what, fmt.Sprintf("delay by %v", f.Treatment.Delay))
	}
	if f.Treatment.Wait != nil {
		what = append(what, "hold")
	}
	if f.Treatment.Lose {
		what = append(what, "lose")
	}
	if f.Treatment.Repeat != nil {
		what = append(what, "repeat")
	}
	if what == nil {
		what = []string{"nothing"}
	}
	return fmt.Sprintf("marker%s, %s: %s", of, f.When, strings.Join(what, " and "))
}

func (f MarkerFault) matches(m txn.Marker) bool {
	return (f.TransactionalID == "" || f.TransactionalID == m.TransactionalID) && (f.Only == nil || f.Only(m))
}

// AddMarker plans a fault of markers: from now on they count.
func (p *Plan) AddMarker(f MarkerFault) *Planned {
	f.When = f.withDefaults()
	return p.add(&Planned{name: f.String(), marker: &f}, f.When)
}

// Treat is for broker.Cluster.TreatMarkers. A marker meets one fault at most, as
// requests do.
func (p *Plan) Treat(m txn.Marker) (out txn.Treatment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := false
	for _, x := range p.planned {
		if x.marker == nil || x.done() || !x.marker.matches(m) || !x.count.match() || taken {
			continue
		}
		taken, out = true, x.marker.Treatment
		p.fire(x, Firing{At: time.Now(), Marker: &m})
	}
	return out
}
