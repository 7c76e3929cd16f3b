package tail

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// maxFetch and maxPartition bound what a broker answers at once, and so what
	// loading holds in memory beside the index: decoded, records take several times
	// their bytes, and kgo reads an answer ahead.
	maxFetch     = 2 << 20
	maxPartition = 512 << 10
	// fetchBytes is more than one transaction marker has (a batch of 78 bytes) and
	// less than an entry or a generation has, however it is compressed. So the marker
	// of a commit ends no fetch by itself and comes with the next entry, which halves
	// the fetches.
	fetchBytes = 79
	// fetchWait is how long a broker parks a fetch that finds less. A marker that is
	// waited for comes as late: that of an abort, whose records are tried again after
	// a pause of about this, or of another process that has ended.
	fetchWait = 100 * time.Millisecond
	// troubleWait is how long reading rests after an error that kgo does not
	// pace itself.
	troubleWait = 50 * time.Millisecond
	// askWait bounds one question to the brokers from the reading goroutine.
	askWait = 2 * time.Second
)

// newClient reads the topic: uncommitted records and markers, from the leader,
// at offsets that only the tail moves. It also writes copies of the generation
// record.
func (l *Ledger) newClient() (*kgo.Client, error) {
	return l.co.NewClient(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: {}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.KeepControlRecords(),
		kgo.FetchMinBytes(fetchBytes), kgo.FetchMaxWait(fetchWait),
		kgo.FetchMaxBytes(maxFetch), kgo.FetchMaxPartitionBytes(maxPartition),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		// A copy that is given up may be written all the same, or twice: it says
		// nothing new. Without this its produce would outlast its context.
		kgo.AllowIdempotentProduceCancellation(),
		kgo.DisableClientMetrics(),
	)
}

// read is the one loop that reads the ledger.
func (l *Ledger) read(ctx context.Context) {
	lost := make(map[*part]bool)
	for ctx.Err() == nil && l.Err() == nil {
		poll, cancel := ctx, context.CancelFunc(func() {})
		if len(lost) > 0 {
			poll, cancel = context.WithTimeout(ctx, troubleWait)
		}
		fetched := l.client.PollFetches(poll)
		cancel()
		trouble := false
		fetched.EachPartition(func(f kgo.FetchTopicPartition) {
			p := l.part(f.Partition)
			if p != nil && len(f.Records) > 0 {
				l.take(p, f.Records, lost)
			}
			if f.Err != nil && ctx.Err() == nil && poll.Err() == nil {
				trouble = l.troubled(ctx, p, f.Err, lost) || trouble
			}
		})
		for p := range lost {
			if l.relocate(ctx, p) {
				delete(lost, p)
			}
		}
		if trouble {
			lapse.For(ctx, troubleWait)
		}
	}
}

// take applies what was read of a partition.
func (l *Ledger) take(p *part, records []*kgo.Record, lost map[*part]bool) {
	got, err := p.apply(records)
	switch {
	case errors.Is(err, errLost):
		lost[p] = true
	case err != nil:
		l.fail(failure(op, l.group, fmt.Errorf("%s: %w", l.topic, err)))
		return
	}
	if got.skipped > 0 {
		l.skipped(p, got.skipped)
		lost[p] = true // to ask where it ends
	}
	if got.generation {
		l.checkGeneration()
	}
	p.moved.fire()
	if got.decides {
		l.changed.fire()
	}
	l.told.works()
}

// skipped tells of a gap. What it hid is known again when the starts of the
// share partitions are.
func (l *Ledger) skipped(p *part, offsets int64) {
	l.tell(sharetxn.LedgerEvent{Event: sharetxn.LedgerGap, Partition: p.n, Records: offsets})
	kick(l.toStart)
}

// troubled looks at what kgo could not read, and tells whether it would come
// again at once.
func (l *Ledger) troubled(ctx context.Context, p *part, err error, lost map[*part]bool) bool {
	_, loss := errors.AsType[*kgo.ErrDataLoss](err)
	switch {
	case p != nil && loss:
		p.lose()
		lost[p] = true
		return false
	case p != nil && errors.Is(err, kerr.OffsetOutOfRange):
		if l.relocate(ctx, p) {
			return false
		}
		lost[p] = true
		return true
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.InconsistentTopicID):
		kick(l.toWidth)
	}
	l.told.trouble(l, fmt.Errorf("reading: %w", err))
	return true
}

// relocate finds where a partition is read on, when its log does not hold the
// next offset, or is not the log that was read. It tells whether it did.
func (l *Ledger) relocate(ctx context.Context, p *part) bool {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	logs, err := l.bounds(ctx, p.n)
	if err != nil {
		l.told.trouble(l, err)
		return false
	}
	how, skipped, err := p.settle(l.group, logs[p.n])
	if err != nil {
		l.fail(failure(op, l.group, fmt.Errorf("%s: %w", l.topic, err)))
		return true
	}
	switch how {
	case goOn: // after a jump, or as a leader says that is not up to date
		p.moved.fire()
		l.changed.fire()
		lapse.For(ctx, troubleWait)
		return true
	case anew:
		l.co.Logger().Error("sharetxn: the ledger's log was cut off behind what was read of it, as after an unclean leader election or a broker that lost its disk: all of it is read again, and what was cut off may be done twice",
			"topic", l.topic, "partition", p.n)
		fallthrough
	case skip:
		l.skipped(p, skipped)
	}
	l.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{l.topic: {p.n: {Epoch: -1, Offset: logs[p.n].start}}})
	p.moved.fire()
	l.changed.fire()
	return true
}

// checkGeneration ends the ledger where a partition is in another generation
// than the one it was opened in.
func (l *Ledger) checkGeneration() {
	mine := l.fixed.Load()
	if mine == nil || l.opts.Observe {
		return
	}
	for _, p := range *l.parts.Load() {
		switch g, err := p.current(); {
		case errors.Is(err, index.ErrNoGeneration): // of a partition that is new
		case err != nil:
			l.fail(failure(op, l.group, fmt.Errorf("%w: %w; stop all members, then: %s", ErrGeneration, err, resetCommand(l.group))))
		case g != *mine:
			l.fail(l.newGeneration(describe(g)))
		}
	}
}

func (l *Ledger) newGeneration(what string) error {
	return failure(op, l.group, fmt.Errorf("%w: %s, where this process works in %s; start it anew, and if it then tells that a reset has not ended, stop all members and run: %s",
		ErrGeneration, what, describe(*l.fixed.Load()), resetCommand(l.group)))
}

func describe(g entry.Generation) string {
	return fmt.Sprintf("generation %d (%v, guarantee %q)", g.Number, g.Phase, g.Guarantee)
}

// kick asks a loop for a round; one that is asked for already is enough.
func kick(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
