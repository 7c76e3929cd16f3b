package broker

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A cluster that cannot keep any more what it did answers for nothing, and ends.
func TestDataLost(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	c := start(t, Config{Data: t.TempDir(), Topics: map[string]int32{"in": 1}})
	w := dial(ctx, t, c, 0)
	heartbeat := kmsg.NewPtrShareGroupHeartbeatRequest()
	heartbeat.Version, heartbeat.GroupID, heartbeat.MemberID, heartbeat.SubscribedTopicNames = 1, "g", "member", []string{"in"}
	w.send(heartbeat)
	if resp := w.receive(heartbeat).(*kmsg.ShareGroupHeartbeatResponse); resp.ErrorCode != 0 {
		t.Fatal(resp)
	}
	select {
	case <-c.Done():
		t.Fatal("ended")
	default:
	}
	if err := c.data.journal.Close(); err != nil {
		t.Fatal(err)
	}
	w.send(heartbeat)
	w.wantCut()
	<-c.Done()
	if c.Err() == nil {
		t.Error("nobody says why")
	}
}
