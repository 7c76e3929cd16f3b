package verify

import (
	"context"
	"fmt"
	"strings"

	"github.com/sharetxn/sharetxn/integration/chaos/task"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Trial names what a trial had to do with.
type Trial struct {
	Seeds   []string
	Group   string
	Sources []string // topics that the group consumes
	Results []string // topics of outputs and dead letters
	Also    []string // topics in which transactions must be over, too
	Limit   int      // of deliveries
	Cuts    int      // processes, brokers and connections that were cut off
	// Rounds in order. The last one must be through with all there is.
	Rounds []Round
	// Deliveries gives what members logged.
	Deliveries func(tell func(round int, at task.At, count int)) error
}

// Verify reads all there is, when the trial is at rest, and judges. It waits for
// live, which has read along, to have seen all.
func (t Trial) Verify(ctx context.Context, live *Live) (*Verdict, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(t.Seeds...))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	sources, err := ends(ctx, adm, t.Sources...)
	if err != nil {
		return nil, err
	}
	results, err := ends(ctx, adm, t.Results...)
	if err != nil {
		return nil, err
	}
	states, err := ends(ctx, adm, shareState)
	if err != nil {
		return nil, err
	}
	if err := live.all[1].finish(ctx, states); err != nil {
		return nil, fmt.Errorf("share group state: %w", err)
	}
	written, err := t.written(ctx, adm, live.states)
	if err != nil {
		return nil, err
	}
	t.Rounds[len(t.Rounds)-1].Through = sources
	j := NewJudge(Terms{Limit: t.Limit, Cuts: t.Cuts, Written: written}, t.Rounds...)
	if err := t.rest(ctx, adm, sources, &j.verdict); err != nil {
		return nil, err
	}
	if err := t.source(ctx, j, sources); err != nil {
		return nil, err
	}
	if err := t.Deliveries(j.Delivered); err != nil {
		return nil, err
	}
	visible, err := t.visible(ctx, j, results)
	if err != nil {
		return nil, err
	}
	all := NewLogs()
	if err := consume(ctx, t.Seeds, kgo.ReadUncommitted(), results, func(r *kgo.Record) {
		all.take(r)
		if tag, err := task.Parse(r.Value); err == nil && !r.Attrs.IsControl() { // what is wrong in a log matters only if it is visible
			j.Trace(tag, Txn{r.ProducerID, r.ProducerEpoch})
		}
	}); err != nil {
		return nil, err
	}
	if err := live.all[0].finish(ctx, results); err != nil {
		return nil, err
	}
	all.judge(&j.verdict, false)
	live.logs.judge(&j.verdict, true)
	same(&j.verdict, visible, all.Sums(), "readers of the committed, against markers in the log")
	same(&j.verdict, visible, live.logs.Sums(), "readers afterwards, against the one that read along")
	v := j.Verdict()
	v.Committed, v.Aborted = all.Committed(), all.Aborted()
	return v, nil
}

// written tells what the brokers wrote of the sources. Each time the group's
// offsets were set was one round.
func (t Trial) written(ctx context.Context, adm *kadm.Client, states *States) (func(round int, p Part, offset int64) (Delivery, int), error) {
	topics, err := adm.ListTopics(ctx, t.Sources...)
	if err := firstError(err, topics.Error()); err != nil {
		return nil, err
	}
	for _, topic := range topics {
		for p := range topic.Partitions {
			if n := states.Rounds(topic.ID, p); n > len(t.Rounds) {
				return nil, fmt.Errorf("the brokers wrote of %s/%d in %d rounds, and there were %d", topic.Topic, p, n, len(t.Rounds))
			}
		}
	}
	return func(round int, p Part, offset int64) (Delivery, int) {
		return states.Of(round, topics[p.Topic].ID, p.Partition, offset)
	}, nil
}

// rest looks whether nothing is under way any more.
func (t Trial) rest(ctx context.Context, adm *kadm.Client, sources map[Part]int64, v *Verdict) error {
	topics := append(append([]string(nil), t.Results...), t.Also...)
	last, err := ends(ctx, adm, topics...)
	if err != nil {
		return err
	}
	stable, err := adm.ListCommittedOffsets(ctx, topics...)
	if err := firstError(err, stable.Error()); err != nil {
		return fmt.Errorf("last stable offsets: %w", err)
	}
	for p, end := range last {
		if o, _ := stable.Lookup(p.Topic, p.Partition); o.Offset != end {
			v.found(Unrest, p, "a transaction is open: readers see up to %d of %d", o.Offset, end)
		}
	}
	groups, err := adm.DescribeShareGroupOffsets(ctx, t.Group)
	if err := firstError(err, groups.Error()); err != nil {
		return fmt.Errorf("offsets of group %s: %w", t.Group, err)
	}
	for p := range sources {
		if o, ok := groups[t.Group].Offsets[p.Topic][p.Partition]; !ok || o.Err != nil || o.Lag != 0 {
			v.found(Unrest, p, "the group lags by %d (%v)", o.Lag, o.Err)
		}
	}
	return nil
}

func (t Trial) source(ctx context.Context, j *Judge, to map[Part]int64) (gap error) {
	next := make(map[Part]int64)
	err := consume(ctx, t.Seeds, kgo.ReadUncommitted(), to, func(r *kgo.Record) {
		p := Part{r.Topic, r.Partition}
		if r.Offset != next[p] && gap == nil {
			gap = fmt.Errorf("source %v: offset %d is missing", p, next[p])
		}
		next[p] = r.Offset + 1
		j.Source(p, r.Value)
	})
	return firstError(err, gap)
}

func (t Trial) visible(ctx context.Context, j *Judge, to map[Part]int64) (map[Part]Sum, error) {
	sums := make(map[Part]Sum)
	err := consume(ctx, t.Seeds, kgo.ReadCommitted(), to, func(r *kgo.Record) {
		if r.Attrs.IsControl() {
			return
		}
		p := Part{r.Topic, r.Partition}
		s := sums[p]
		sums[p] = Sum{s.Records + 1, s.Hash + hash(r.Offset, r.Value)}
		tag, err := task.Parse(r.Value)
		if err != nil {
			j.verdict.found(Wrong, p, "offset %d: %v", r.Offset, err)
			return
		}
		j.Visible(tag, Txn{r.ProducerID, r.ProducerEpoch})
	})
	return sums, err
}

// take is what a reader came by.
func (l *Logs) take(r *kgo.Record) {
	p := Part{r.Topic, r.Partition}
	if !r.Attrs.IsControl() {
		l.Data(p, Txn{r.ProducerID, r.ProducerEpoch}, r.Offset, r.Value)
		return
	}
	const commit = 1 // a marker's key is its version and its type, two bytes each
	l.Marker(p, r.ProducerID, len(r.Key) == 4 && r.Key[3] == commit)
}

// ends of all partitions of topics.
func ends(ctx context.Context, adm *kadm.Client, topics ...string) (map[Part]int64, error) {
	listed, err := adm.ListEndOffsets(ctx, topics...)
	if err := firstError(err, listed.Error()); err != nil {
		return nil, fmt.Errorf("end offsets of %s: %w", strings.Join(topics, ", "), err)
	}
	out := make(map[Part]int64)
	listed.Each(func(o kadm.ListedOffset) { out[Part{o.Topic, o.Partition}] = o.Offset })
	return out, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
