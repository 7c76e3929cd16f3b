// Package byhand speaks the share group APIs request by request: what a client
// library would hide (epochs, sessions, single answers) is its caller's. The
// conformance suite and the differential runs are written with it.
package byhand

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Member is one member of a share group. It has connections of its own: brokers
// bind a share session to the connection that opened it. Not safe for
// concurrent use, but for CutConnections.
type Member struct {
	Group, ID string
	Epoch     int32    // as the last heartbeat answered
	Topics    []string // subscription that Join and Beat tell

	client   *kgo.Client
	dialer   *dialer
	sessions map[int32]*Session
	at       int32 // the group's coordinator, -1 if it must be asked for
}

// NewMember makes a member that has done nothing yet. Close it.
func NewMember(seeds []string, group string, topics ...string) (*Member, error) {
	d := newDialer()
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.Dialer(d.dial), kgo.MetadataMinAge(10*time.Millisecond),
		kgo.ConnIdleTimeout(15*time.Minute), kgo.RetryTimeout(20*time.Second), kgo.DisableClientMetrics())
	if err != nil {
		return nil, err
	}
	return &Member{Group: group, ID: newID(), Topics: topics, client: client, dialer: d, sessions: make(map[int32]*Session), at: -1}, nil
}

func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// Close closes the connections, as the end of a process does: no session is
// closed, the group is not left.
func (m *Member) Close() { m.client.Close() }

// CutConnections closes every connection as a broken network does.
func (m *Member) CutConnections() { m.dialer.cut() }

// Client sends any other request over this member's connections.
func (m *Member) Client() *kgo.Client { return m.client }

// Heartbeat sends exactly req, with this member's group and id filled in where
// they are empty, and takes over the epoch of a good answer.
func (m *Member) Heartbeat(ctx context.Context, req *kmsg.ShareGroupHeartbeatRequest) (*kmsg.ShareGroupHeartbeatResponse, error) {
	if req.GroupID == "" {
		req.GroupID = m.Group
	}
	if req.MemberID == "" {
		req.MemberID = m.ID
	}
	if err := m.locate(ctx); err != nil {
		return nil, err
	}
	kresp, err := m.client.Broker(int(m.at)).Request(ctx, req)
	if err != nil {
		m.at = -1
		return nil, err
	}
	resp := kresp.(*kmsg.ShareGroupHeartbeatResponse)
	switch resp.ErrorCode {
	case 0:
		m.Epoch = resp.MemberEpoch
	case kerr.NotCoordinator.Code, kerr.CoordinatorNotAvailable.Code:
		m.at = -1
	}
	return resp, nil
}

// locate asks for the group's coordinator where it is not known. kgo, asked to
// find it, keeps to the first one: that it is no longer it never reaches kgo in a
// heartbeat.
func (m *Member) locate(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for m.at < 0 {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKeys = []string{m.Group}
		resp, err := req.RequestWith(ctx, m.client)
		if err != nil {
			return err
		}
		c := resp.Coordinators[0]
		if c.ErrorCode == 0 {
			m.at = c.NodeID
			return nil
		}
		if err := kerr.ErrorForCode(c.ErrorCode); !kerr.IsRetriable(err) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Join is the heartbeat with epoch 0 and the subscription.
func (m *Member) Join(ctx context.Context) (*kmsg.ShareGroupHeartbeatResponse, error) {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.SubscribedTopicNames = m.Topics
	return m.Heartbeat(ctx, req)
}

// Beat is the heartbeat that changes nothing.
func (m *Member) Beat(ctx context.Context) (*kmsg.ShareGroupHeartbeatResponse, error) {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.MemberEpoch = m.Epoch
	return m.Heartbeat(ctx, req)
}

// Leave is the heartbeat with epoch -1.
func (m *Member) Leave(ctx context.Context) (*kmsg.ShareGroupHeartbeatResponse, error) {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.MemberEpoch = -1
	return m.Heartbeat(ctx, req)
}

// Partition is a partition by its topic's id.
type Partition struct {
	Topic [16]byte
	Index int32
}

// Assigned is the assignment of an answer; nil if it tells none.
func Assigned(resp *kmsg.ShareGroupHeartbeatResponse) map[Partition]bool {
	if resp.Assignment == nil {
		return nil
	}
	out := make(map[Partition]bool)
	for _, t := range resp.Assignment.TopicPartitions {
		for _, p := range t.Partitions {
			out[Partition{t.TopicID, p}] = true
		}
	}
	return out
}

// Settle joins and beats until n partitions are assigned.
func (m *Member) Settle(ctx context.Context, n int) (map[Partition]bool, error) {
	resp, err := m.Join(ctx)
	var have map[Partition]bool
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if err != nil {
			return have, err
		}
		switch {
		case resp.ErrorCode == 14, resp.ErrorCode == 15, resp.ErrorCode == 16: // the coordinator loads or moved
			m.Epoch = 0
		case resp.ErrorCode != 0:
			return have, fmt.Errorf("heartbeat of group %s: code %d", m.Group, resp.ErrorCode)
		}
		if a := Assigned(resp); a != nil {
			have = a
		}
		if len(have) == n && n >= 0 {
			return have, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return have, fmt.Errorf("%d partitions of group %s assigned, want %d: %w", len(have), m.Group, n, context.Cause(ctx))
		}
		if m.Epoch == 0 {
			resp, err = m.Join(ctx)
		} else {
			resp, err = m.Beat(ctx)
		}
	}
}
