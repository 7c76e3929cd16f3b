package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	// longestLock is the most that a group's lock may be.
	longestLock = time.Minute
	// quiet is how long a poll that finds nothing means that nothing is available.
	quiet = 2 * time.Second
	// keepHeld is how long others' records are kept, so that they do not come again.
	keepHeld = time.Hour
)

// settlement is a member that acknowledges what is done and keeps what else it gets,
// so that it is not given the same again and again.
type settlement struct {
	*drainage
	left  undone
	limit int
	lock  time.Duration
	held  []*shareconsumer.Batch
}

func (s *settlement) run(ctx context.Context) (err error) {
	configs, err := groupconfig.Describe(ctx, s.cl, s.group)
	if err != nil {
		return err
	}
	s.limit, s.lock = configs.DeliveryCountLimit, cmp.Or(configs.LockDuration, longestLock)
	topics := make(map[string]bool)
	for at := range s.left {
		topics[at.topic] = true
	}
	names := slices.Sorted(maps.Keys(topics))
	infos, _, err := topic.Describe(ctx, s.client, names...)
	if err != nil {
		return err
	}
	member, err := shareconsumer.New(s.cl, s.group, shareconsumer.Topics(names...))
	if err != nil {
		return err
	}
	for i, name := range names { // what need not be looked through is not touched
		for p := range int32(infos[i].Partitions) {
			if s.left[place{name, p}] == nil {
				member.Pause(name, p)
			}
		}
	}
	err = errors.Join(s.poll(ctx, member), s.rest(ctx, member))
	s.note()
	return errors.Join(err, s.leave(ctx, member))
}

// rest takes what was fetched already, so that it is counted.
func (s *settlement) rest(ctx context.Context, member *shareconsumer.Consumer) error {
	if err := member.Drain(ctx); err != nil {
		return err
	}
	for {
		bounded, cancel := context.WithTimeout(ctx, firstLook)
		b, err := member.Poll(bounded)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return nil
		case err != nil:
			return err
		}
		if err := s.accept(ctx, member, b); err != nil {
			return err
		}
	}
}

// quietTwice is how many polls in a row must find nothing while the leaders answer:
// in the first the member may still have been about to reach one that came back.
const quietTwice = 2

// poll goes on until all that is left was accepted, or all that is available was
// seen after every lock of former members has ended: what was not among it has
// been acknowledged by them. That nothing comes says so only of leaders that
// answer.
func (s *settlement) poll(ctx context.Context, member *shareconsumer.Consumer) error {
	free := s.since.Add(s.lock)
	for found := 0; s.left.len() > 0; {
		bounded, cancel := context.WithTimeout(ctx, quiet)
		b, err := member.Poll(bounded)
		cancel()
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%d offsets that are done may still have to be acknowledged: %w", s.left.len(), context.Cause(ctx))
		case errors.Is(err, context.DeadlineExceeded):
			switch {
			case time.Now().Before(free):
			case !s.answering(ctx):
				found = 0
			default:
				if found++; found == quietTwice {
					return nil
				}
			}
			continue
		case err != nil:
			return err
		}
		found = 0
		if err := s.accept(ctx, member, b); err != nil {
			return err
		}
	}
	return nil
}

// answering tells whether the leaders of all partitions answer of which something
// is left. Those that are gone have none.
func (s *settlement) answering(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	topics := make(map[string]bool)
	for at := range s.left {
		topics[at.topic] = true
	}
	listed, err := kadm.NewClient(s.client).ListEndOffsets(ctx, slices.Sorted(maps.Keys(topics))...)
	if err != nil {
		return false
	}
	for at, offsets := range s.left {
		end, told := listed.Lookup(at.topic, at.partition)
		if len(offsets) > 0 && (!told || end.Err != nil && !errors.Is(end.Err, kerr.UnknownTopicOrPartition)) {
			return false
		}
	}
	return true
}

// accept acknowledges what of a batch is done, and keeps the rest.
func (s *settlement) accept(ctx context.Context, member *shareconsumer.Consumer, b *shareconsumer.Batch) error {
	var done []*shareconsumer.Record
	for _, r := range b.Records() {
		if s.left[place{r.Topic, r.Partition}][r.Offset] {
			r.Accept()
			done = append(done, r)
		}
	}
	if len(done) > 0 {
		if err := b.CommitSync(ctx); err != nil {
			return fmt.Errorf("acknowledging what is done: %w", err)
		}
	}
	for _, r := range done {
		at := place{r.Topic, r.Partition}
		if delete(s.left[at], r.Offset); len(s.left[at]) == 0 {
			member.Pause(at.topic, at.partition)
		}
	}
	s.out.Accepted += int64(len(done))
	b.KeepLocked(keepHeld)
	s.held = append(s.held, b)
	return nil
}

// note counts what is given back.
func (s *settlement) note() {
	for _, b := range s.held {
		for _, r := range b.Records() {
			s.out.Released++
			if s.limit > 0 && int(r.DeliveryCount()) >= s.limit {
				s.out.LastDelivery = append(s.out.LastDelivery, Offset{r.Topic, r.Partition, r.Offset})
			}
		}
	}
}

// leave gives back what is held, and waits until the group is without members.
func (s *settlement) leave(ctx context.Context, member *shareconsumer.Consumer) error {
	if err := member.Close(); err != nil {
		return err
	}
	for {
		err := empty(ctx, s.client, s.op, s.group)
		if !errors.Is(err, ErrGroupNotEmpty) || !lapse.For(ctx, lastLook) {
			return err
		}
	}
}

// raiseLimit lets the group deliver a record as often as Kafka allows, so that what
// is given back is not archived; restore puts it back. Before Kafka 4.3 a group has
// no such config.
func (d *drainage) raiseLimit(ctx context.Context) (restore func() error, err error) {
	none := func() error { return nil }
	configs, err := groupconfig.Describe(ctx, d.cl, d.group)
	if err != nil {
		return none, err
	}
	const most = 10
	key := groupconfig.DeliveryCountLimit(most).Key()
	was, has := configs.Entry(key)
	if !has || configs.DeliveryCountLimit >= most {
		return none, nil
	}
	if err := groupconfig.Set(ctx, d.cl, d.group, groupconfig.DeliveryCountLimit(most)); err != nil {
		return none, fmt.Errorf("the delivery limit, so that what is given back is not archived: %w", err)
	}
	back := groupconfig.Unset(key)
	if was.Source == groupconfig.SourceGroup {
		back = groupconfig.Value(key, was.Value)
	}
	return func() error {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := groupconfig.Set(bounded, d.cl, d.group, back); err != nil {
			return &sharetxn.Error{Op: d.op, Class: sharetxn.ClassAbortable, Group: d.group, Err: fmt.Errorf("%s of the group was set to %d for the move and could not be put back to %s: %w", key, most, back, err)}
		}
		return nil
	}, nil
}
