package shareconsumer

// reaction is what a member does about a heartbeat's answer.
type reaction uint8

const (
	stay    reaction = iota // take over epoch and assignment
	again                   // same epoch, after a pause
	rejoin                  // epoch 0, at once; everything held is lost
	surface                 // tell the next poll, stay in the group
	stop                    // fatal: tell every poll until closed
)

// heartbeatReactions is KIP-932's error table for ShareGroupHeartbeat; a code
// that is not in it is fatal. NOT_COORDINATOR and the like have been retried by
// kgo, with the coordinator looked up anew, before they are seen here.
var heartbeatReactions = map[int16]reaction{
	0:   stay,
	14:  again,   // COORDINATOR_LOAD_IN_PROGRESS
	15:  again,   // COORDINATOR_NOT_AVAILABLE
	16:  again,   // NOT_COORDINATOR
	7:   again,   // REQUEST_TIMED_OUT
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
