package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/sharetxn/sharetxn/internal/ledger/tail"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Status is what a ledger holds. Its numbers are sums over Partitions.
type Status struct {
	Generation int64
	Guarantee  string // of the group: Ledger, Staged or AckAfterCommit
	// Problem says why no processor could work with the ledger, such as a reset that
	// did not end, and Command what mends that; empty if there is nothing.
	Problem, Command string

	Entries    int64     // that decide something: Open and AboveStart
	Open       int64     // whose transaction is neither committed nor aborted
	AboveStart int64     // committed, and not wholly below the start of their share partition
	Records    int64     // offsets of the log
	Oldest     time.Time // when the oldest record of the log was written; zero: it is empty
	Bytes      int64     // of the log, in one replica; -1: brokers do not tell (Describe on the cluster)

	Partitions []PartitionStatus // ascending
}

// PartitionStatus is one partition's part of a Status.
type PartitionStatus struct {
	Partition                 int32
	Generation                int64 // 0: it says none
	Entries, Open, AboveStart int64
	Records                   int64
	Oldest                    time.Time
	Bytes                     int64
	OldestOpen                int64  // offset of the first entry that is open; -1: none
	OldestOpenTransactionalID string // whose it is
	OldestOpenProducerID      int64
	OldestOpenProducerEpoch   int16
}

// ReadStatus reads the ledger of a group once, from its beginning to its present
// end, which takes as long as a processor needs to load it. It changes nothing.
// Safe for concurrent use.
//
// Errors: ErrMissing; class usage for arguments; fatal for a ledger that a newer
// library writes; what brokers were not reached for is abortable.
func ReadStatus(ctx context.Context, cl *sharetxn.Cluster, group string) (Status, error) {
	const op = "ReadStatus"
	if err := check(op, cl, group); err != nil {
		return Status{}, err
	}
	l, err := tail.Open(ctx, core.Of(cl), group, tail.Options{Observe: true})
	if err != nil {
		return Status{}, err
	}
	told := l.Status()
	if err := l.Close(); err != nil {
		return Status{}, err
	}
	var s Status
	for _, p := range told.Partitions {
		x := PartitionStatus{
			Partition: p.Partition, Generation: p.Generation.Number, Bytes: -1, OldestOpen: -1,
			Entries: int64(p.Open + p.Committed), Open: int64(p.Open), AboveStart: int64(p.Committed),
		}
		if o := p.OldestOpen; o != nil {
			x.OldestOpen, x.OldestOpenTransactionalID, x.OldestOpenProducerID, x.OldestOpenProducerEpoch = o.At, o.TransactionalID, o.Producer.ID, o.Producer.Epoch
		}
		s.Partitions = append(s.Partitions, x)
	}
	current, err := agreed(told)
	s.Generation, s.Guarantee = current.Number, current.Guarantee
	if err != nil {
		s.Problem, s.Command = err.Error(), topic.Remedy(group, err)
	}
	err = use(cl, op, group, func(client *kgo.Client) error { return s.measure(ctx, kadm.NewClient(client), topic.Name(group)) })
	if err != nil {
		return Status{}, err
	}
	s.sum()
	return s, nil
}

// agreed is the generation that all partitions are in, as package topic judges it.
func agreed(s tail.Status) (entry.Generation, error) {
	states := make(topic.States, len(s.Partitions))
	for i, p := range s.Partitions {
		if _, clash := errors.AsType[*index.ClashError](p.GenerationErr); clash {
			return entry.Generation{}, fmt.Errorf("%w: partition %d: %w", topic.ErrMixed, p.Partition, p.GenerationErr)
		}
		states[i].Generation = p.Generation
	}
	return states.Current()
}

// measure asks how large the log is, and how old.
func (s *Status) measure(ctx context.Context, adm *kadm.Client, name string) error {
	starts, err := adm.ListStartOffsets(ctx, name)
	if err != nil {
		return err
	}
	ends, err := adm.ListEndOffsets(ctx, name)
	if err != nil {
		return err
	}
	first, err := adm.ListOffsetsAfterMilli(ctx, 0, name)
	if err != nil {
		return err
	}
	sizes := sizes(ctx, adm, name, len(s.Partitions))
	for i := range s.Partitions {
		p := &s.Partitions[i]
		start, ok := starts.Lookup(name, p.Partition)
		end, known := ends.Lookup(name, p.Partition)
		if !ok || !known {
			continue
		}
		p.Records = end.Offset - start.Offset
		if oldest, ok := first.Lookup(name, p.Partition); ok && oldest.Timestamp >= 0 && p.Records > 0 {
			p.Oldest = time.UnixMilli(oldest.Timestamp)
		}
		if size, told := sizes[p.Partition]; told {
			p.Bytes = size
		}
	}
	return nil
}

// sizes are bytes by partition, of the largest replica; those that nobody tells are
// not among them.
func sizes(ctx context.Context, adm *kadm.Client, name string, partitions int) map[int32]int64 {
	all := make(kadm.TopicsSet)
	for p := range partitions {
		all.Add(name, int32(p))
	}
	described, err := adm.DescribeAllLogDirs(ctx, all)
	if err != nil && len(described) == 0 {
		return nil
	}
	out := make(map[int32]int64)
	described.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) { out[p.Partition] = max(out[p.Partition], p.Size) })
	})
	return out
}

func (s *Status) sum() {
	for _, p := range s.Partitions {
		s.Entries += p.Entries
		s.Open += p.Open
		s.AboveStart += p.AboveStart
		s.Records += p.Records
		if !p.Oldest.IsZero() && (s.Oldest.IsZero() || p.Oldest.Before(s.Oldest)) {
			s.Oldest = p.Oldest
		}
		s.Bytes += p.Bytes
	}
	if slices.ContainsFunc(s.Partitions, func(p PartitionStatus) bool { return p.Bytes < 0 }) {
		s.Bytes = -1
	}
}
