package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// resetsWithin bounds a reset of the group in virtual time: members that were
// killed or are held are members until their sessions end.
const resetsWithin = 5 * time.Minute

// resetBy has the operator set the group back, with all that belongs to it. Processes
// stop for it and start again, but for those that are held: these find out when they
// go on.
func (w *world) resetBy(set func(context.Context, *world) error) {
	names := w.emptied(func(ctx context.Context) error { return set(ctx, w) })
	w.demandAgain()
	for _, name := range names {
		w.start(name)
	}
}

// setTo sets the group back to what was fed from a time of the run on.
func (w *world) setTo(ctx context.Context, to time.Duration) error {
	if w.setup.Guarantee == processor.Ledger {
		return w.resetLedger(ctx, to)
	}
	return w.setStarts(ctx, to)
}

// unsets are the ways to give up a group's start offsets. Its ledger, which says what is
// done, is reset after that: the group may be gone.
var unsets = map[string]func(context.Context, *world) error{
	"alter": func(ctx context.Context, w *world) error {
		return w.giveUp(ctx, func(ctx context.Context, adm *kadm.Client) error {
			all := make(kadm.Offsets)
			for p := range w.broker.Partitions(topicIn) {
				all.Add(kadm.Offset{Topic: topicIn, Partition: p, At: -1, LeaderEpoch: -1})
			}
			altered, err := adm.AlterShareGroupOffsets(ctx, group, all)
			return errors.Join(err, altered.Error())
		})
	},
	"delete": func(ctx context.Context, w *world) error {
		return w.giveUp(ctx, func(ctx context.Context, adm *kadm.Client) error {
			deleted, err := adm.DeleteShareGroupOffsets(ctx, group, topicIn)
			return errors.Join(err, deleted.Error())
		})
	},
	"group": func(ctx context.Context, w *world) error {
		return w.giveUp(ctx, func(ctx context.Context, adm *kadm.Client) error {
			deleted, err := adm.DeleteGroups(ctx, group)
			return errors.Join(err, deleted.Error())
		})
	},
}

// giveUp gives the group's offsets up, unless there are none.
func (w *world) giveUp(ctx context.Context, how func(context.Context, *kadm.Client) error) error {
	cl, err := kgo.NewClient(w.kit.Kafka()...)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := how(ctx, kadm.NewClient(cl)); err != nil && !errors.Is(err, kerr.GroupIDNotFound) && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return err
	}
	if w.setup.Guarantee == processor.Ledger {
		return w.resetLedger(ctx, 0)
	}
	return nil
}

// emptied does what needs a group without members, and gives the processes that were
// stopped for it.
func (w *world) emptied(do func(context.Context) error) (stopped []string) {
	ctx, cancel := context.WithTimeout(context.Background(), resetsWithin)
	defer cancel()
	for last := ""; ; {
		stopped = append(stopped, w.stopUnheld()...)
		err := w.ended()
		if err == nil {
			err = do(ctx)
		}
		if err == nil {
			return stopped
		}
		if what := err.Error(); what != last {
			last = what
			w.note("not set back yet: %s", what)
		}
		if !lapse.For(ctx, time.Second) {
			w.blame("unset: the group was not set back in %v: %v", resetsWithin, err)
			return stopped
		}
	}
}

// stopUnheld stops the processes that can hear of it, and gives the names of those
// that were not replaced before.
func (w *world) stopUnheld() (stopped []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.all {
		if !p.works() || time.Now().Before(p.held) {
			continue
		}
		p.stop()
		if w.current[p.name] == p {
			stopped = append(stopped, p.name)
		}
	}
	return stopped
}

// ended is nil if no transaction is open: what is published then is all that is made
// of what was done so far.
func (w *world) ended() error {
	if open := w.hanging(); len(open) > 0 {
		return errors.New(open[0])
	}
	for _, t := range w.broker.Transactions() { // of one that only acknowledges no log tells
		switch t.Status {
		case txn.Ongoing, txn.PrepareCommit, txn.PrepareAbort:
			return fmt.Errorf("transaction %s is %v", t.ID, t.Status)
		}
	}
	return nil
}

func (w *world) resetLedger(ctx context.Context, to time.Duration) error {
	cl := w.kit.Connect(w.t)
	defer cl.Close()
	return ledger.Reset(ctx, cl, group, w.moment(to))
}

// moment is a time of the run; the zero Time, which is before all, at its start.
func (w *world) moment(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return w.began.Add(d)
}

// setStarts sets the group's offsets, as Kafka's own tool does.
func (w *world) setStarts(ctx context.Context, to time.Duration) error {
	cl, err := kgo.NewClient(w.kit.Kafka()...)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	var listed kadm.ListedOffsets
	if to == 0 {
		listed, err = adm.ListStartOffsets(ctx, topicIn)
	} else {
		listed, err = adm.ListOffsetsAfterMilli(ctx, w.moment(to).UnixMilli(), topicIn)
	}
	if err = errors.Join(err, listed.Error()); err != nil {
		return err
	}
	altered, err := adm.AlterShareGroupOffsets(ctx, group, listed.Offsets())
	return errors.Join(err, altered.Error())
}

// demandAgain notes what the records are to come to, now that the group was set
// back: what it works on is published once more than it is now, and of what it
// passes over nothing is.
func (w *world) demandAgain() {
	var got published
	var wrong []string
	if w.setup.Form == FormAcknowledger {
		got, wrong = w.due()
	} else {
		got, _, wrong = w.published()
	}
	for _, x := range wrong {
		w.blame("%s", x)
	}
	starts := make(map[int32]int64)
	for _, s := range w.broker.PartitionStates(group) {
		starts[s.Partition] = s.Start
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	again := 0
	for i := range w.fed {
		f := &w.fed[i]
		f.times = got.times(f.value)
		if f.offset >= starts[f.partition] {
			f.times++
			again++
		}
	}
	w.note("%d of %d records are to be done once more", again, len(w.fed))
}

// blame notes what is wrong beside the run's end.
func (w *world) blame(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	w.note("%s", what)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, what)
}
