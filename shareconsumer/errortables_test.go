package shareconsumer

import (
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What each code of ShareFetch and ShareAcknowledge means, as KIP-932 and
// Java's client have it.
func TestCodesOfShareRequests(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	type meaning struct {
		session   bool // it is gone
		leader    bool // and the locks with it
		named     bool // the answer may name the new one
		transient bool // an acknowledgement is sent again as it is
		divisible bool // and again in halves
		class     sharetxn.Class
	}
	abortable := sharetxn.ClassAbortable
	for err, want := range map[*kerr.Error]meaning{
		kerr.ShareSessionNotFound:      {session: true, class: abortable},
		kerr.InvalidShareSessionEpoch:  {session: true, class: abortable},
		kerr.ShareSessionLimitReached:  {session: true, class: abortable},
		kerr.NotLeaderForPartition:     {leader: true, named: true, class: abortable},
		kerr.FencedLeaderEpoch:         {leader: true, named: true, class: abortable},
		kerr.UnknownTopicOrPartition:   {leader: true, class: abortable},
		kerr.UnknownTopicID:            {leader: true, class: abortable},
		kerr.CoordinatorLoadInProgress: {transient: true, class: abortable},
		kerr.CoordinatorNotAvailable:   {transient: true, class: abortable},
		kerr.NotCoordinator:            {transient: true, class: abortable},
		kerr.InvalidRecordState:        {divisible: true, class: abortable},
		kerr.InvalidRequest:            {divisible: true, class: abortable},
		kerr.TopicAuthorizationFailed:  {class: abortable},
		kerr.GroupAuthorizationFailed:  {class: abortable},
		kerr.FencedStateEpoch:          {class: abortable},
		kerr.UnknownServerError:        {class: sharetxn.ClassUnknown},
		kerr.RequestTimedOut:           {class: sharetxn.ClassUnknown},
	} {
		got := meaning{sessionGone(err.Code), leaderGone(err.Code), leaderNamed(err.Code), transient(err.Code), divisible(err.Code), ackClass(err.Code)}
		if got != want {
			t.Errorf("%s: %+v, want %+v", err.Message, got, want)
		}
	}
}

// A fetch that is refused as a whole: where the session is gone the next one
// opens another, after anything else the epoch goes on. Records come either way.
func TestRefusedFetch(t *testing.T) {
	for code, reopens := range map[*kerr.Error]bool{
		kerr.ShareSessionNotFound:     true,
		kerr.InvalidShareSessionEpoch: true,
		kerr.ShareSessionLimitReached: true,
		kerr.UnknownTopicID:           false,
		kerr.UnknownServerError:       true, // what it may have acquired goes back, while nothing else is held
		kerr.InvalidRequest:           false,
	} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			ctx := testkit.Deadline(t, 30*time.Second)
			c := startCluster(t, 20*time.Second)
			leader := c.Leader("in", 0)
			var mu sync.Mutex
			refused, next := int32(-1), int32(-1)
			c.SetIntercept(func(r broker.Request) broker.Action {
				req, ok := r.Message().(*kmsg.ShareFetchRequest)
				if !ok || r.Node != leader {
					return broker.Action{}
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case refused < 0 && req.ShareSessionEpoch > 0: // handled, and yet answered so
					refused = req.ShareSessionEpoch
					return broker.Action{After: func(resp kmsg.Response) {
						answer := resp.(*kmsg.ShareFetchResponse)
						answer.ErrorCode, answer.Topics = code.Code, nil
					}}
				case refused >= 0 && next < 0:
					next = req.ShareSessionEpoch
				}
				return broker.Action{}
			})
			m := c.consumer(t)
			polled := make(chan *Batch, 1)
			go func() {
				b, err := m.Poll(ctx)
				if err != nil {
					t.Error(err)
				}
				polled <- b
			}()
			testkit.Eventually(ctx, t, "the fetch after the refused one", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return next >= 0
			})
			want := refused + 1
			if reopens {
				want = 0
			}
			if next != want {
				t.Errorf("epoch %d after %d, want %d", next, refused, want)
			}
			c.feedTo(ctx, t, 1, 1)
			if b := <-polled; b != nil {
				b.AcceptRest()
				if err := b.CommitSync(ctx); err != nil {
					t.Error(err)
				}
			}
			c.waitDone(ctx, t, 1)
		})
	}
}
