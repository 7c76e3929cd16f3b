package conformance

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
)

// membership is joining, staying and leaving (KIP-932, ShareGroupHeartbeat).
var membership = []Case{
	{Name: "membership/the first answer assigns nothing", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 2)
		m := x.Member(x.Group(ctx), t.Name)
		resp, err := m.Join(ctx)
		x.Must(err)
		x.Same("code", resp.ErrorCode, int16(0))
		x.Same("heartbeat interval", resp.HeartbeatIntervalMillis, int32(500))
		have, err := m.Settle(ctx, 2)
		x.Must(err)
		x.Same("partitions", len(have), 2)
	}},
	{Name: "membership/an unknown member", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		group := x.Group(ctx)
		x.Joined(ctx, group, 1, t.Name)
		stranger := x.Member(group, t.Name)
		stranger.Epoch = 1
		resp, err := stranger.Beat(ctx)
		x.Must(err)
		x.Same("code", resp.ErrorCode, kerr.UnknownMemberID.Code)
	}},
}
