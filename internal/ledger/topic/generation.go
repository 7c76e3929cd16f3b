package topic

import (
	"context"
	"fmt"

	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/twmb/franz-go/pkg/kgo"
)

// State is what one partition of a ledger says.
type State struct {
	Generation entry.Generation // in force; zero: there is none
	Newest     int64            // the highest generation that an entry is of; 0: there are no entries
}

// States are those of all partitions, by their number.
type States []State

// Number is the highest generation that anything in the ledger is of; 0: it is
// empty.
func (s States) Number() (n int64) {
	for _, p := range s {
		n = max(n, p.Generation.Number, p.Newest)
	}
	return n
}

// Latest is the generation that counts, as far as partitions have got to know it;
// zero: there is none.
func (s States) Latest() (g entry.Generation) {
	for _, p := range s {
		if p.Generation.Supersedes(g) {
			g = p.Generation
		}
	}
	return g
}

// Lacking are the partitions without a generation.
func (s States) Lacking() (out []int32) {
	for p, x := range s {
		if x.Generation == (entry.Generation{}) {
			out = append(out, int32(p))
		}
	}
	return out
}

// All are the numbers of the partitions.
func (s States) All() []int32 {
	out := make([]int32, len(s))
	for p := range s {
		out[p] = int32(p)
	}
	return out
}

// Current is the generation of the ledger. Errors, with what was found, are
// ErrNoGeneration, ErrMixed, ErrResetting and ErrMoving.
func (s States) Current() (entry.Generation, error) {
	latest, lacking := s.Latest(), s.Lacking()
	switch {
	case s.Number() > latest.Number:
		return latest, fmt.Errorf("%w: it has entries of generation %d, and the newest that it says is %d", ErrMixed, s.Number(), latest.Number)
	case latest.Moving():
		return latest, fmt.Errorf("%w: it was to be under %s", ErrMoving, latest.Guarantee)
	case latest.Phase == entry.Resetting:
		return latest, fmt.Errorf("%w: it was to be generation %d", ErrResetting, latest.Number)
	}
	for p, x := range s {
		if x.Generation != latest && x.Generation != (entry.Generation{}) {
			return latest, fmt.Errorf("%w: partition %d says %s, another %s", ErrMixed, p, words(x.Generation), words(latest))
		}
	}
	switch len(lacking) {
	case len(s):
		return latest, ErrNoGeneration
	case 0:
		return latest, nil
	}
	return latest, fmt.Errorf("%w in partitions %v, and %d in others", ErrNoGeneration, lacking, latest.Number)
}

func words(g entry.Generation) string {
	return fmt.Sprintf("%d %v for guarantee %s", g.Number, g.Phase, g.Guarantee)
}

// see takes a record of the partition in.
func (s *State) see(value []byte) error {
	parsed, err := entry.Parse(value)
	if err != nil {
		return err
	}
	switch {
	case parsed.Entry != nil:
		s.Newest = max(s.Newest, parsed.Entry.Generation)
	case parsed.Generation.Contradicts(s.Generation):
		return fmt.Errorf("%w: one partition says %s and %s", ErrMixed, words(s.Generation), words(*parsed.Generation))
	case parsed.Generation.Supersedes(s.Generation):
		s.Generation = *parsed.Generation
	}
	return nil
}

// ReadStates reads the whole ledger, which must have so many partitions. Errors
// wrap entry.ErrVersion where a newer library writes there.
func ReadStates(ctx context.Context, co *core.Cluster, group string, partitions int) (States, error) {
	var states States
	err := Scan(ctx, co, group, func() func(*kgo.Record) error {
		states = make(States, partitions)
		return func(r *kgo.Record) error {
			if r.Attrs.IsControl() || int(r.Partition) >= partitions {
				return nil // a partition that is newer than partitions says nothing here
			}
			return states[r.Partition].see(r.Value)
		}
	})
	return states, err
}

// WriteGeneration writes a record of the generation into each of the partitions,
// outside of transactions and to all replicas in sync, and returns when all have
// it.
func WriteGeneration(ctx context.Context, co *core.Cluster, group string, g entry.Generation, partitions []int32) error {
	value, err := g.Append(nil)
	if err != nil {
		return Failed("Produce", group, "", err)
	}
	// By default kgo waits beyond ctx for what may have been written. A record that
	// comes later than its writer gave up does no harm: the next has a higher number.
	cl, err := co.NewClient(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0), kgo.AllowIdempotentProduceCancellation())
	if err != nil {
		return Failed("Produce", group, "", err)
	}
	defer cl.Close()
	records := make([]*kgo.Record, len(partitions))
	for i, p := range partitions {
		records[i] = &kgo.Record{Topic: Name(group), Partition: p, Value: value}
	}
	for _, result := range cl.ProduceSync(ctx, records...) {
		if result.Err != nil {
			return Failed("Produce", group, "Write on topic "+Name(group), fmt.Errorf("generation %d of the ledger, partition %d: %w", g.Number, result.Record.Partition, result.Err))
		}
	}
	return nil
}
