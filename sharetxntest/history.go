package sharetxntest

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Expect is what a group's history is held against.
type Expect struct {
	Group string
	// Guarantee that the group works under. Default: GuaranteeLedger if its ledger has
	// entries, otherwise GuaranteeStaged.
	Guarantee check.Guarantee
	// Outputs are the topics that the group's transactions may publish to, dead
	// letters included; none: wherever they did. DeadLetters are those of them that
	// rejected records go to; none: rule I2 is not judged.
	Outputs, DeadLetters []string
	// Source tells which input record an output or a dead letter was made from, by its
	// headers or contents; false if it does not say. Default: dead letters as package
	// processor writes them, and outputs do not say. It makes the rules look at single
	// records and not only at transactions, and with GuaranteeAckAfterCommit it is
	// what they rest on.
	Source func(out *kgo.Record) (Origin, bool)
	// Want is how many outputs an input record must have, unless it is rejected.
	// Default: any number; where outputs alone tell of work, at least one.
	Want func(in *kgo.Record) int
	// Bound is how long after Calm the group may take to be drained; 0: rule I9 is
	// not judged.
	Bound time.Duration
}

// Origin is the input record that an output was made from.
type Origin struct {
	Topic     string
	Partition int32
	Offset    int64
	Nth, Of   int // which of the record's outputs it is, from 1, and of how many; 0: not known
}

// Calm notes that the last fault is over: from now on the group must be drained,
// as WaitDrained and RunUntilDrained find it, within Expect.Bound.
func (c *Cluster) Calm() { c.broker.Note(check.Calm{}) }

// History gathers what brokers, clients and readers saw of a group, and what lies
// in the cluster now, for check.Judge, or for a file (check.History.Write). The
// group should be at rest. What a reader of ReadAlong has not read yet is waited
// for.
func (c *Cluster) History(t testing.TB, e Expect) *check.History {
	t.Helper()
	ctx, cancel := c.bounded()
	defer cancel()
	h, err := c.history(ctx, e)
	if err != nil {
		t.Fatalf("sharetxntest.History: %v", err)
	}
	return h
}

func (c *Cluster) history(ctx context.Context, e Expect) (*check.History, error) {
	for _, r := range c.readers {
		if err := c.catchUp(ctx, r); err != nil {
			return nil, err
		}
	}
	facts, err := c.broker.Facts(ctx, e.Group, slices.Concat(e.Outputs, e.DeadLetters)...)
	if err != nil {
		return nil, err
	}
	if len(e.Outputs) == 0 {
		facts.Outputs = nil
	}
	h := facts.History(e.Guarantee)
	h.DeadLetters, h.Bound, h.Ledger = e.DeadLetters, e.Bound, topic.Name(e.Group)
	if h.Guarantee == "" {
		h.Guarantee = guarantee(h)
	}
	if err := c.sources(ctx, h, e); err != nil {
		return nil, err
	}
	if err := c.outputs(ctx, h, e); err != nil {
		return nil, err
	}
	for _, r := range c.readers {
		for at, next := range r.reached() {
			h.Lines = append(h.Lines, check.Line{Event: check.Reached{Reader: r.name, At: check.At{Place: at, Offset: next}}})
		}
	}
	return h, nil
}

// guarantee tells which one a history is of.
func guarantee(h *check.History) check.Guarantee {
	for _, l := range h.Lines {
		if e, ok := l.Event.(check.Entry); ok && e.Group == "" {
			return check.GuaranteeLedger
		}
	}
	return check.GuaranteeStaged
}

// sources says of each source record how many outputs it must have.
func (c *Cluster) sources(ctx context.Context, h *check.History, e Expect) error {
	if e.Want == nil {
		return nil
	}
	for _, topic := range topicsOf[check.Source](h) {
		rs, err := c.broker.Committed(ctx, topic)
		if err != nil {
			return err
		}
		for _, r := range rs {
			h.Lines = append(h.Lines, check.Line{Event: check.Source{Range: one(r), Outputs: new(e.Want(r))}})
		}
	}
	return nil
}

// outputs tells of each visible record by itself, but for sources.
func (c *Cluster) outputs(ctx context.Context, h *check.History, e Expect) error {
	if e.Source == nil && len(e.DeadLetters) == 0 && len(c.readers) == 0 {
		return nil
	}
	sources := topicsOf[check.Source](h)
	h.Lines = slices.DeleteFunc(h.Lines, func(l check.Line) bool {
		v, ok := l.Event.(check.Visible)
		return ok && !slices.Contains(sources, v.Topic)
	})
	for _, topic := range topicsOf[check.Log](h) {
		if slices.Contains(sources, topic) {
			continue
		}
		rs, err := c.broker.Committed(ctx, topic)
		if err != nil {
			return err
		}
		for _, r := range rs {
			h.Lines = append(h.Lines, check.Line{Event: e.visible(r)})
		}
	}
	return nil
}

func (e *Expect) visible(r *kgo.Record) check.Visible {
	v := check.Visible{Range: one(r), Sum: sum(r)}
	if r.Attrs.IsTransactional() {
		v.Txn = &check.Txn{Producer: r.ProducerID, Epoch: r.ProducerEpoch}
	}
	from, ok := e.origin(r)
	if ok {
		v.From = &check.At{Place: check.Place{Topic: from.Topic, Partition: from.Partition}, Offset: from.Offset}
		v.Nth, v.Of = from.Nth, from.Of
	}
	return v
}

func (e *Expect) origin(r *kgo.Record) (Origin, bool) {
	if e.Source != nil {
		if from, ok := e.Source(r); ok {
			return from, true
		}
	}
	if slices.Contains(e.DeadLetters, r.Topic) {
		return LetterSource(r)
	}
	return Origin{}, false
}

// LetterSource tells which record a dead letter of package processor is of; false
// if its headers do not say.
func LetterSource(r *kgo.Record) (Origin, bool) {
	headers := make(map[string]string)
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	partition, err := strconv.ParseInt(headers[processor.HeaderPartition], 10, 32)
	if err != nil {
		return Origin{}, false
	}
	offset, err := strconv.ParseInt(headers[processor.HeaderOffset], 10, 64)
	if err != nil || headers[processor.HeaderTopic] == "" {
		return Origin{}, false
	}
	return Origin{Topic: headers[processor.HeaderTopic], Partition: int32(partition), Offset: offset}, true
}

// topicsOf lists the topics that events of a kind are about.
func topicsOf[E check.Source | check.Log](h *check.History) []string {
	all := make(map[string]bool)
	for _, l := range h.Lines {
		if e, ok := l.Event.(E); ok {
			switch e := any(e).(type) {
			case check.Source:
				all[e.Topic] = true
			case check.Log:
				all[e.Topic] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func one(r *kgo.Record) check.Range {
	return check.Range{Place: check.Place{Topic: r.Topic, Partition: r.Partition}, First: r.Offset, Last: r.Offset}
}
