package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Where a reset goes that is no time, as ListOffsets reads it.
const (
	toEnd       = -1
	toBeginning = -2
)

// Reset sets the offsets of a group to a time, in all partitions of all topics that
// the group has begun, and begins a new generation of its ledger, so that what was
// done before counts no more: records from there on are done, whatever the ledger
// says of them. It is Kafka's reset of a share group's offsets and the ledger's as
// one step; after Kafka's own tool alone, the ledger still says that the records
// are done, and processors accept them without work (a process that stood still
// meanwhile notices, and stops). The zero Time is the beginning of each partition, a
// time to come its end: up to what is committed, so that a transaction under way is
// still read.
//
// The group must have no members, and gets none meanwhile: until Reset has ended,
// processors do not start. One that failed half-way leaves it so; the next Reset
// completes it, to whichever time. Run one at a time. It returns when the group's
// coordinator tells the new offsets and every partition of the ledger has the new
// generation, at most when ctx ends. What a leader handed out of its old state
// after that, which Kafka does until its next write, is sorted out by the ledger.
//
// Errors: ErrGroupNotEmpty, ErrMissing, ErrChanged; class usage for arguments;
// fatal, with what to grant, where brokers refuse; what brokers were not reached
// for is abortable.
func Reset(ctx context.Context, cl *sharetxn.Cluster, group string, to time.Time) error {
	const op = "Reset"
	if err := check(op, cl, group); err != nil {
		return err
	}
	return use(cl, op, group, func(client *kgo.Client) error {
		if err := empty(ctx, client, op, group); err != nil {
			return err
		}
		co := core.Of(cl)
		states, err := read(ctx, co, client, group)
		if err != nil {
			return err
		}
		next := entry.Generation{Number: states.Number() + 1, Guarantee: states.Latest().Guarantee, Phase: entry.Resetting, ResetTo: resetTo(to, time.Now()), Group: group}
		if next.Guarantee == "" {
			next.Guarantee = Ledger
		}
		if err := topic.WriteGeneration(ctx, co, group, next, states.All()); err != nil {
			return halfway(op, group, err)
		}
		if err := setOffsets(ctx, client, op, group, next.ResetTo); err != nil {
			return halfway(op, group, err)
		}
		next.Phase, next.ResetTo = entry.Active, 0
		return install(ctx, co, client, op, next, states.All())
	})
}

// resetTo is a time as ListOffsets reads it.
func resetTo(to, now time.Time) int64 {
	switch {
	case to.IsZero():
		return toBeginning
	case to.After(now):
		return toEnd
	}
	return max(1, to.UnixMilli()) // 0 would say that a move is under way
}

// halfway says what a failure leaves behind.
func halfway(op, group string, err error) error {
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassOf(err), Group: group,
		Err: fmt.Errorf("%w; it did not come to its end, and the group's processors do not start before it does: run it again", err)}
}

// install puts a generation in force, and proves it: another who did the same
// meanwhile may have been later.
func install(ctx context.Context, co *core.Cluster, client *kgo.Client, op string, g entry.Generation, partitions []int32) error {
	if err := topic.WriteGeneration(ctx, co, g.Group, g, partitions); err != nil {
		return halfway(op, g.Group, err)
	}
	states, err := read(ctx, co, client, g.Group)
	if err != nil {
		return halfway(op, g.Group, err)
	}
	current, err := states.Current()
	switch {
	case err != nil:
		return halfway(op, g.Group, unusable(op, g.Group, err))
	case current != g:
		return &sharetxn.Error{Op: op, Class: sharetxn.ClassAbortable, Group: g.Group, Err: fmt.Errorf("%w: it is in generation %d now, not in %d; run it again", ErrChanged, current.Number, g.Number)}
	}
	return nil
}

// setOffsets alters the group's starts, and waits until its coordinator tells them.
func setOffsets(ctx context.Context, client *kgo.Client, op, group string, to int64) error {
	adm := kadm.NewClient(client)
	has, err := starts(ctx, adm, group)
	if err != nil || len(has) == 0 {
		return err
	}
	targets, err := targets(ctx, adm, group, slices.Sorted(maps.Keys(has)), to)
	if err != nil {
		return err
	}
	altered, err := adm.AlterShareGroupOffsets(ctx, group, targets)
	if err == nil {
		err = altered.Error()
	}
	switch {
	case errors.Is(err, kerr.NonEmptyGroup):
		return notEmpty(op, group, nil)
	case err != nil:
		return topic.Failed("AlterShareGroupOffsets", group, "Read on group "+group+" and on its topics", err)
	}
	return awaitStarts(ctx, adm, group, targets)
}

// starts are the group's by topic and partition; a topic that it has begun is in
// it, also where no partition has a start yet.
func starts(ctx context.Context, adm *kadm.Client, group string) (kadm.ShareOffsets, error) {
	described, err := adm.DescribeShareGroupOffsets(ctx, group)
	if err == nil {
		err = described.Error()
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, topic.Failed("DescribeShareGroupOffsets", group, "Describe on group "+group, err)
	}
	return described[group].Offsets, nil
}

// targets are where the partitions of topics are to begin. A topic that does not
// exist any more has none.
func targets(ctx context.Context, adm *kadm.Client, group string, topics []string, to int64) (kadm.Offsets, error) {
	var listed kadm.ListedOffsets
	var err error
	switch to {
	case toBeginning:
		listed, err = adm.ListStartOffsets(ctx, topics...)
	case toEnd:
		listed, err = adm.ListCommittedOffsets(ctx, topics...)
	default:
		listed, err = adm.ListOffsetsAfterMilli(ctx, to, topics...)
	}
	if err != nil {
		return nil, topic.Failed("ListOffsets", group, "Describe on the group's topics", err)
	}
	out := make(kadm.Offsets)
	var failed error
	listed.Each(func(o kadm.ListedOffset) {
		switch {
		case errors.Is(o.Err, kerr.UnknownTopicOrPartition):
		case o.Err != nil:
			failed = topic.Failed("ListOffsets", group, "Describe on topic "+o.Topic, fmt.Errorf("topic %s, partition %d: %w", o.Topic, o.Partition, o.Err))
		default:
			out.AddOffset(o.Topic, o.Partition, o.Offset, -1)
		}
	})
	return out, failed
}

// Between two looks at starts that are not told yet.
const (
	firstLook = 10 * time.Millisecond
	lastLook  = time.Second
)

// awaitStarts waits until the coordinator tells the starts.
func awaitStarts(ctx context.Context, adm *kadm.Client, group string, want kadm.Offsets) error {
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		now, err := starts(ctx, adm, group)
		behind := ""
		want.Each(func(o kadm.Offset) {
			if at, told := now[o.Topic][o.Partition]; !told || at.StartOffset != o.At {
				behind = fmt.Sprintf("partition %s-%d begins at %d, not yet at %d", o.Topic, o.Partition, at.StartOffset, o.At)
			}
		})
		switch {
		case err == nil && behind == "":
			return nil
		case sharetxn.IsFatal(err):
			return err
		}
		if !lapse.For(ctx, pause) {
			return topic.Failed("DescribeShareGroupOffsets", group, "", errors.Join(context.Cause(ctx), err, errors.New(behind)))
		}
	}
}
