package txnmanager

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What a leader's answer says of the end of the transaction of producer id 7 at
// epoch 3, whose marker has epoch 4.
func TestLook(t *testing.T) {
	testkit.Deadline(t, 60*time.Second)
	active := func(id int64, epoch int32, open int64) kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch, a.CurrentTxnStartOffset = id, epoch, open
		return a
	}
	for name, c := range map[string]struct {
		err    *kerr.Error
		active []kmsg.DescribeProducersResponseTopicPartitionActiveProducer
		want   seen
	}{
		"marker":                           {active: []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{active(8, 9, 2), active(7, 4, -1)}, want: seenMarker},
		"marker of a later one":            {active: []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{active(7, 6, -1)}, want: seenMarker},
		"open":                             {active: []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{active(7, 3, 5)}, want: seenOpen},
		"open from the first offset":       {active: []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{active(7, 3, 0)}, want: seenOpen},
		"open, at a later epoch":           {active: []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{active(7, 4, 5)}, want: seenOpen},
		"ended by the one before":          {active: []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{active(7, 3, -1)}, want: seenNothing},
		"others":                           {active: []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{active(8, 9, -1), active(9, 9, 2)}, want: seenNothing},
		"nobody":                           {want: seenNothing},
		"no such partition":                {err: kerr.UnknownTopicOrPartition, want: seenGone},
		"no such topic id":                 {err: kerr.UnknownTopicID, want: seenGone},
		"not the leader":                   {err: kerr.NotLeaderForPartition, want: seenMoved},
		"no leader":                        {err: kerr.LeaderNotAvailable, want: seenMoved},
		"fenced leader":                    {err: kerr.FencedLeaderEpoch, want: seenMoved},
		"no right":                         {err: kerr.TopicAuthorizationFailed, want: seenDenied},
		"an error, though it shows nobody": {err: kerr.UnknownServerError, want: seenFailed},
	} {
		p := kmsg.NewDescribeProducersResponseTopicPartition()
		p.ActiveProducers = c.active
		if c.err != nil {
			p.ErrorCode = c.err.Code
		}
		if got := look(&p, identity{7, 3}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// That nothing is open, without proof of the marker, is believed of an abort at
// once, and of a commit when it was told often enough over long enough.
func TestBelieved(t *testing.T) {
	testkit.Deadline(t, 60*time.Second)
	start := time.Now()
	at := func(after ...time.Duration) (found []bool) {
		var d doubt
		for _, a := range after {
			found = append(found, d.believed(true, start.Add(a)))
		}
		return found
	}
	for name, c := range map[string]struct{ got, want []bool }{
		"often, and long":        {at(0, time.Second, gonePatience), []bool{false, false, true}},
		"often, and not long":    {at(0, time.Second, gonePatience-1), []bool{false, false, false}},
		"long, and not often":    {at(0, gonePatience), []bool{false, false}},
		"counted from the first": {at(time.Hour, time.Hour+1, time.Hour+2), []bool{false, false, false}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if !new(doubt).believed(false, start) {
		t.Error("what an abort's partition does not have is not there")
	}
}

// A repair is told by its distance: even for a commit, odd for an abort, and never
// that of the marker itself.
func TestFits(t *testing.T) {
	testkit.Deadline(t, 60*time.Second)
	for _, commit := range []bool{true, false} {
		for next := int16(3); next < 10; next++ {
			marker := next + 1 - 3 // epochs behind the transaction's
			want := marker > 1 && (marker%2 == 0) == commit
			if got := fits(identity{7, 3}, identity{7, next}, commit); got != want {
				t.Errorf("commit %v, at epoch %d after 3: %v", commit, next, got)
			}
		}
	}
}

// Every place is kept, however often it comes and in whichever order.
func TestWritten(t *testing.T) {
	testkit.Deadline(t, 60*time.Second)
	var w written
	for _, p := range []place{{"a", 0}, {"a", 0}, {"b", 0}, {"a", 1}, {"a", 0}, {"b", 0}} {
		w.add(p)
	}
	if got := ordered(w.places()); !slices.Equal(got, []place{{"a", 0}, {"a", 1}, {"b", 0}}) {
		t.Errorf("%v", got)
	}
}

// Landed is told of a commit, after the outcome was, and of an abort never.
func TestLandedIsTold(t *testing.T) {
	for _, commit := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			told := false
			m := &TransactionManager{}
			m.mu.Lock()
			l := m.land(&Transaction{m: m, start: Start{Landed: func() { told = true }}}, commit, false)
			m.mu.Unlock()
			synctest.Wait()
			if told {
				t.Error("told before the outcome")
			}
			close(l.told)
			<-l.done
			if told != commit {
				t.Errorf("commit %v: told %v", commit, told)
			}
		})
	}
}
