package shareconsumer

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// coordinator is the broker that a member's heartbeats go to. kgo would send
// them there by itself, but sends them once and does not look for the
// coordinator again when it has moved. Only the membership goroutine uses it.
type coordinator struct {
	client *kgo.Client
	group  string
	node   int32
	known  bool
}

// send sends one heartbeat, once: what a repetition would have to say depends on
// what became of the first. An answer's code may be FindCoordinator's; op names
// whose it is.
func (k *coordinator) send(ctx context.Context, req *kmsg.ShareGroupHeartbeatRequest) (resp *kmsg.ShareGroupHeartbeatResponse, op string, err error) {
	if !k.known {
		code, err := k.find(ctx)
		if err != nil || code != 0 {
			resp = kmsg.NewPtrShareGroupHeartbeatResponse()
			resp.ErrorCode = code
			return resp, "FindCoordinator", err
		}
	}
	kresp, err := k.client.Broker(int(k.node)).Request(ctx, req)
	if err != nil {
		k.known = false // it may have died, and another have taken over
		return nil, "ShareGroupHeartbeat", err
	}
	resp = kresp.(*kmsg.ShareGroupHeartbeatResponse)
	if reactTo(resp.ErrorCode) == seek {
		k.known = false
	}
	return resp, "ShareGroupHeartbeat", nil
}

// groupCoordinator is the key type of FindCoordinator.
const groupCoordinator = 0

func (k *coordinator) find(ctx context.Context) (code int16, err error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = groupCoordinator, k.group, []string{k.group}
	resp, err := req.RequestWith(ctx, k.client)
	if err != nil {
		return 0, err
	}
	if resp.ErrorCode != 0 { // of the one key; kgo fills it whatever the version
		return resp.ErrorCode, nil
	}
	k.node, k.known = resp.NodeID, true
	return 0, nil
}

const leaveEpoch = -1

// leave tells the coordinator that the member goes, until it has heard it or ctx
// ends. Both answers that say that the member is not there are as good.
func (c *Consumer) leave(ctx context.Context, k *coordinator) error {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.MemberEpoch = c.group, c.id, leaveEpoch
	for failures := 0; ; failures++ {
		resp, op, err := k.send(ctx, req)
		if err == nil {
			switch reactTo(resp.ErrorCode) {
			case stay, rejoin:
				return nil
			case surface, stop:
				return brokerError(op, c.group, sharetxn.ClassAbortable, resp.ErrorCode)
			case again, seek:
				err = brokerError(op, c.group, sharetxn.ClassAbortable, resp.ErrorCode)
			}
		}
		select {
		case <-time.After(backoff(failures)):
		case <-ctx.Done():
			return err
		}
	}
}
