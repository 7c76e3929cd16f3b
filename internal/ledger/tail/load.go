package tail

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// look asks how many partitions the topic has, and that it is still the same.
func (l *Ledger) look(ctx context.Context) (width int, err error) {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &l.topic
	req.Topics = append(req.Topics, rt)
	err = l.co.Use(func(meta *kgo.Client) error {
		resp, err := req.RequestWith(ctx, meta)
		if err != nil {
			return err
		}
		if len(resp.Topics) != 1 {
			return fmt.Errorf("metadata of topic %s: %d topics came", l.topic, len(resp.Topics))
		}
		t := resp.Topics[0]
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition) && l.id != [16]byte{}:
			return l.lost("deleted")
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			return topic.Unusable(op, l.group, topic.ErrMissing)
		case err != nil:
			return topic.Failed("Metadata", l.group, "Read, Write, Describe and Delete on topic "+l.topic, err)
		case l.id == [16]byte{}:
			l.id = t.TopicID
		case l.id != t.TopicID:
			return l.lost("deleted, and made anew")
		}
		width = len(t.Partitions)
		return nil
	})
	return width, err
}

func (l *Ledger) lost(how string) error {
	return failure(op, l.group, fmt.Errorf("%w: topic %s was %s, and with it what says which records are done; stop all members, then: %s; %s",
		ErrLedgerGone, l.topic, how, topic.Remedy(l.group, topic.ErrMissing), resetCommand(l.group)))
}

// widen begins to read the partitions up to width that are not read yet.
func (l *Ledger) widen(ctx context.Context, width int) error {
	have := *l.parts.Load()
	if width <= len(have) {
		return nil
	}
	logs, err := l.bounds(ctx, upTo(len(have), width)...)
	if err != nil {
		return err
	}
	all := make([]*part, width)
	at := make(map[int32]kgo.Offset)
	for n := copy(all, have); n < width; n++ {
		all[n] = newPart(l.group, int32(n), logs[int32(n)])
		at[int32(n)] = kgo.NewOffset().At(logs[int32(n)].start)
	}
	l.parts.Store(&all)
	l.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: at})
	l.changed.fire() // an empty partition is loaded already
	return nil
}

// loadRound is how often loading looks at what it waits for.
const loadRound = 200 * time.Millisecond

// load waits until all partitions are. Meanwhile it reads the starts of the share
// partitions, so that no more is held than what lies above them.
func (l *Ledger) load(ctx context.Context) error {
	tick := time.NewTicker(loadRound)
	defer tick.Stop()
	for {
		behind := l.behind()
		if behind == nil {
			return l.Err()
		}
		moved := behind.moved.wait()
		if behind.loaded() {
			continue
		}
		select {
		case <-moved:
		case <-l.done:
			return l.err
		case <-ctx.Done():
			next, until := behind.at()
			return fmt.Errorf("loading topic %s: partition %d was read up to offset %d of %d%s: %w", l.topic, behind.n, next, until, l.told.why(), context.Cause(ctx))
		case <-tick.C:
			if err := l.whileLoading(ctx, behind); err != nil {
				return err
			}
		}
	}
}

func (l *Ledger) whileLoading(ctx context.Context, behind *part) error {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	if err := l.readStarts(ctx); sharetxn.IsFatal(err) {
		return err // any other is told by those who read them later
	}
	// kgo begins at the log's start by itself where that lies behind the offset
	// that it was given; if nothing is left there, nothing comes.
	logs, err := l.bounds(ctx, behind.n)
	if err != nil {
		return nil // it is asked again
	}
	skipped, err := behind.forward(logs[behind.n])
	if skipped > 0 {
		l.skipped(behind, skipped)
	}
	return err
}

func (l *Ledger) behind() *part {
	for _, p := range *l.parts.Load() {
		if !p.loaded() {
			return p
		}
	}
	return nil
}
