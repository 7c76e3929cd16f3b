package tail

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// source is one source partition of the group.
type source struct {
	topic     [16]byte
	partition int32
}

// starts are the starts of the group's share partitions, as brokers told them.
type starts struct {
	mu    sync.Mutex
	floor map[source]floor
	names map[[16]byte]string
	gone  map[[16]byte]doubt // topics that have entries, and that no broker knows
}

// floor is the highest start that was told of a share partition. It never falls
// within a generation, but by somebody who sets the group's offsets back.
type floor struct {
	at    int64
	lower doubt
}

// told takes note of a start and tells whether the group's offsets were set back:
// a coordinator that is just taking over may tell what was.
func (f *floor) told(start int64, now time.Time, apart time.Duration) (back bool) {
	if start >= f.at {
		*f = floor{at: start}
		return false
	}
	return f.lower.again(now, apart)
}

// doubt is something that must be told several times in a row, and for longer
// than a broker may be behind, before it is believed. The zero doubt is ready.
type doubt struct {
	times int
	since time.Time
}

// believedAfter is how often.
const believedAfter = 3

// again takes note that it was told, and says whether it is believed now.
func (d *doubt) again(now time.Time, apart time.Duration) bool {
	if d.times++; d.times == 1 {
		d.since = now
	}
	return d.times >= believedAfter && now.Sub(d.since) >= apart
}

// name is the topic's, as far as it was told; for hooks.
func (s *starts) name(topic [16]byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[topic]
}

func (s *starts) named(topic [16]byte, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = make(map[[16]byte]string)
	}
	s.names[topic] = name
}

// firstStarts reads the starts until they are told, or ctx ends.
func (l *Ledger) firstStarts(ctx context.Context) error {
	for {
		err := l.readStarts(ctx)
		if err == nil || sharetxn.IsFatal(err) {
			return err
		}
		if lapse.For(ctx, troubleWait); ctx.Err() != nil {
			return err
		}
	}
}

// readStarts asks for the starts of all share partitions of the group and gives
// them to the indexes: with where each ledger partition was before the question,
// and, if it had a gap, where its log ended after the answer.
func (l *Ledger) readStarts(ctx context.Context) error {
	parts := *l.parts.Load()
	asked := make([]question, len(parts))
	var gapped []int32
	for n, p := range parts {
		if asked[n] = p.asked(); asked[n].gapped {
			gapped = append(gapped, p.n)
		}
	}
	topics, err := l.describeStarts(ctx)
	if err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	logs, failed := l.bounds(short, gapped...)
	give := func(topic [16]byte, n int32, start int64) {
		end := asked[n].asOf
		if asked[n].gapped {
			log, known := logs[n]
			if !known {
				return
			}
			end = log.end
		}
		parts[n].started(asked[n], topic, start, end)
	}
	listed := make(map[[16]byte]bool)
	for _, t := range topics {
		listed[t.TopicID] = true
		l.starts.named(t.TopicID, t.Topic)
		for _, s := range t.Partitions {
			if err := kerr.ErrorForCode(s.ErrorCode); err != nil {
				l.told.trouble(l, fmt.Errorf("the start of share partition %s-%d: %w", t.Topic, s.Partition, err))
				continue
			}
			if s.Partition < 0 || int(s.Partition) >= len(parts) {
				continue
			}
			if l.setBack(source{t.TopicID, s.Partition}, s.StartOffset) {
				return failure(op, l.group, fmt.Errorf("%w: share partition %s-%d begins at %d, and had reached more; stop all members and set both: %s",
					ErrOffsetsReset, t.Topic, s.Partition, s.StartOffset, resetCommand(l.group)))
			}
			give(t.TopicID, s.Partition, s.StartOffset)
		}
	}
	gone, unknown := l.gone(ctx, parts, listed)
	for _, topic := range gone {
		for _, p := range parts {
			if p.forget(topic) {
				give(topic, p.n, math.MaxInt64)
			}
		}
	}
	l.changed.fire()
	return errors.Join(failed, unknown)
}

// gone are the topics that have entries and do not exist any more: nothing of
// them can be acquired, and their entries hold the log no longer. Whether a topic
// exists that the group still lists need not be asked.
func (l *Ledger) gone(ctx context.Context, parts []*part, listed map[[16]byte]bool) (gone [][16]byte, err error) {
	suspects := make(map[[16]byte]bool)
	for _, p := range parts {
		p.suspect(suspects, listed)
	}
	if len(suspects) == 0 {
		return nil, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	for id := range suspects {
		rt := kmsg.NewMetadataRequestTopic()
		rt.TopicID = id
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, l.client)
	if err != nil {
		return nil, fmt.Errorf("asking for source topics that the group does not list: %w", err)
	}
	s := &l.starts
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.gone
	s.gone = make(map[[16]byte]doubt)
	for _, t := range resp.Topics {
		if kerr.ErrorForCode(t.ErrorCode) != error(kerr.UnknownTopicID) {
			continue
		}
		d := was[t.TopicID]
		if d.again(time.Now(), l.opts.Starts) {
			gone = append(gone, t.TopicID)
		} else {
			s.gone[t.TopicID] = d
		}
	}
	return gone, nil
}

func (l *Ledger) setBack(k source, start int64) bool {
	s := &l.starts
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.floor == nil {
		s.floor = make(map[source]floor)
	}
	f, known := s.floor[k]
	if !known {
		f = floor{at: start}
	}
	back := f.told(start, time.Now(), l.opts.Starts)
	s.floor[k] = f
	return back && !l.opts.Observe
}

func (p *part) started(q question, topic [16]byte, start, end int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ix == q.of {
		p.ix.Start(topic, start, q.asOf, end)
	}
}

func (l *Ledger) describeStarts(ctx context.Context) ([]kmsg.DescribeShareGroupOffsetsResponseGroupTopic, error) {
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	group := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	group.GroupID = l.group
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, l.client)
	if err == nil && len(resp.Groups) != 1 {
		err = fmt.Errorf("%d groups came", len(resp.Groups))
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.Groups[0].ErrorCode)
	}
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		return nil, nil // none has begun
	case err != nil:
		return nil, topic.Failed("DescribeShareGroupOffsets", l.group, "Describe on the group", err)
	}
	return resp.Groups[0].Topics, nil
}
