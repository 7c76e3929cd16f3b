package demo

import (
	"context"
	"errors"
	"sync"

	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/audit"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/quake"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// handler is the service's own code: it enriches, raises alerts, and rejects
// what is no earthquake. On some records it fails, the first time.
type handler struct {
	to    audit.Topics
	fired func(faults.Kind, *processor.Record) bool // whether it hit its window

	mu    sync.Mutex
	fails map[int]faults.Kind // by number of the record
}

func newHandler(to audit.Topics, p faults.Plan, fired func(faults.Kind, *processor.Record) bool) *handler {
	h := &handler{to: to, fired: fired, fails: make(map[int]faults.Kind)}
	for i, k := range p.Handler {
		h.fails[i] = k
	}
	return h
}

var errOnPurpose = errors.New("the handler fails, on purpose")

// handle is a processor.Handler.
func (h *handler) handle(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
	if k, fails := h.failure(in); fails {
		if k == faults.HandlerPanic {
			panic(errOnPurpose)
		}
		return nil, errOnPurpose
	}
	res := quake.Transform(in.Value)
	if res.Rejected() {
		return nil, processor.Reject(errors.New(res.Reason))
	}
	out := []*kgo.Record{{Topic: h.to.Enriched, Key: res.Key, Value: res.Enriched}}
	if res.Alert != nil {
		out = append(out, &kgo.Record{Topic: h.to.Alerts, Key: res.Key, Value: res.Alert})
	}
	return out, nil
}

// failure takes the fault that is planned for a record, unless that is not held any
// more: whoever stood still past its lock handles for nothing, and the record comes
// again.
func (h *handler) failure(in *processor.Record) (k faults.Kind, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := number(in.Partition, in.Offset)
	if k, ok = h.fails[n]; !ok || !h.fired(k, in) {
		return k, false
	}
	delete(h.fails, n)
	return k, true
}
