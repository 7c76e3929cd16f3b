package shareconsumer

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// reaction is what a member does about a heartbeat's answer.
type reaction uint8

const (
	stay    reaction = iota // take over epoch and assignment
	again                   // same epoch, after a pause
	seek                    // find the coordinator again, then the same epoch
	rejoin                  // epoch 0, at once; everything held is lost
	surface                 // tell the next poll, stay in the group
	stop                    // fatal: tell every poll until closed
)

// heartbeatReactions is KIP-932's error table for ShareGroupHeartbeat, and for
// FindCoordinator before it; a code that is not in it is fatal.
var heartbeatReactions = map[int16]reaction{
	0:   stay,
	14:  again,   // COORDINATOR_LOAD_IN_PROGRESS
	7:   again,   // REQUEST_TIMED_OUT
	15:  seek,    // COORDINATOR_NOT_AVAILABLE
	16:  seek,    // NOT_COORDINATOR
	25:  rejoin,  // UNKNOWN_MEMBER_ID
	110: rejoin,  // FENCED_MEMBER_EPOCH
	69:  rejoin,  // GROUP_ID_NOT_FOUND: the group was deleted under us
	29:  surface, // TOPIC_AUTHORIZATION_FAILED: an ACL may be mended
	30:  stop,    // GROUP_AUTHORIZATION_FAILED
	42:  stop,    // INVALID_REQUEST
	81:  stop,    // GROUP_MAX_SIZE_REACHED
	112: stop,    // UNSUPPORTED_ASSIGNOR
	35:  stop,    // UNSUPPORTED_VERSION
}

func reactTo(code int16) reaction {
	r, ok := heartbeatReactions[code]
	if !ok {
		return stop
	}
	return r
}

const (
	// eager is how often a member asks while it waits for an assignment: brokers
	// make them about once a second and tell them only when asked.
	eager = 100 * time.Millisecond
	// eagerFor bounds that, so that a member more than there are partitions
	// does not ask for ever.
	eagerFor = 10 * time.Second
	// minBeat and maxBeat clamp the interval a broker asks for.
	minBeat = 50 * time.Millisecond
	maxBeat = time.Minute
)

// memberState is what the membership goroutine alone knows.
type memberState struct {
	coordinator coordinator
	asked       bool      // whether brokers have what is needed at all
	due         time.Time // the next heartbeat
	told        []string  // the topics of the last heartbeat that succeeded; nil: the next tells everything
	waits       time.Time // for an assignment, eagerly, until then
	since       int32     // the epoch when that began
	failures    int       // in a row
}

// request is the next heartbeat: complete when the member joins and when it is
// not known what the coordinator has heard, else with what changed.
func (m *memberState) request(group, id string, epoch int32, topics []string, rack string) *kmsg.ShareGroupHeartbeatRequest {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.MemberEpoch = group, id, epoch
	full := m.told == nil || epoch == 0
	if full || !slices.Equal(m.told, topics) {
		req.SubscribedTopicNames = topics
	}
	if full && rack != "" {
		req.RackID = &rack
	}
	return req
}

// await makes heartbeats eager, for a while, until there is an assignment of a
// later epoch.
func (m *memberState) await(epoch int32, now time.Time) { m.since, m.waits = epoch, now.Add(eagerFor) }

// next gives when to ask again after an answer at epoch, with so many
// partitions assigned by now.
func (m *memberState) next(asked time.Duration, epoch int32, assigned int, now time.Time) time.Duration {
	if assigned > 0 && epoch != m.since {
		m.waits = time.Time{}
	}
	interval := min(max(asked, minBeat), maxBeat)
	if now.Before(m.waits) {
		interval = min(interval, eager)
	}
	return interval
}
