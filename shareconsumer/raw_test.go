package shareconsumer

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawLeave takes a member out of the group behind its back.
func rawLeave(ctx context.Context, t *testing.T, c *cluster, member string) int16 {
	t.Helper()
	k, err := c.cl.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.MemberEpoch = "g", member, -1
	resp, err := req.RequestWith(ctx, k)
	if err != nil {
		t.Fatal(err)
	}
	return resp.ErrorCode
}
