// Package share is the embedded broker's share groups (KIP-932) with
// transactional acknowledgement (KIP-1289, in both profiles): membership, sessions, share partitions, staging, offsets. It answers decoded requests and
// knows topics only through Log, so it holds no socket and no kfake; its timers
// are plain package time and therefore virtual inside testing/synctest.
package share

import (
	"context"
	"log/slog"
	"time"

	"github.com/sharetxn/sharetxn/internal/wire"
)

// Topic is one incarnation of a topic.
type Topic struct {
	ID         [16]byte
	Name       string
	Partitions int32
}

// Bounds are offsets of a partition's log.
type Bounds struct {
	Start      int64 // log start
	LastStable int64 // LSO
	End        int64 // high watermark
}

// AbortedTxn is an aborted transaction that a chunk touches.
type AbortedTxn struct{ ProducerID, FirstOffset int64 }

// Chunk is a piece of a log: whole batches, the first may start below the
// offset asked for.
type Chunk struct {
	Records []byte
	Bounds  Bounds
	Aborted []AbortedTxn
}

// Log is what the engine needs to know of topics and their logs. Its methods
// may do I/O and are never called under a lock.
type Log interface {
	Topic(id [16]byte) (Topic, bool)
	TopicByName(name string) (Topic, bool)
	Leader(topic string, partition int32) (node, epoch int32) // node -1: none
	Node(node int32) (host string, port int32, rack *string, ok bool)
	GroupCoordinator(group string) (node int32)
	GroupTaken(group string) bool // a group of another type has the name
	Bounds(ctx context.Context, topic string, partition int32) (Bounds, error)
	// Read gives the log from offset on; only with committed the aborted
	// transactions too.
	Read(ctx context.Context, topic string, partition int32, offset int64, maxBytes int32, committed bool) (Chunk, error)
	OffsetForTime(ctx context.Context, topic string, partition int32, at time.Time) (int64, error)
}

// Txns registers staged acknowledgements with the transaction coordinator: with
// TV2 the broker does it and the client nothing.
type Txns interface {
	// AddShareState answers the Kafka error code of the coordinator; with 0 the
	// partitions of __share_group_state are part of the transaction.
	AddShareState(ctx context.Context, txnID string, producerID int64, epoch int16, statePartitions []int32) int16
}

// Conn is the client connection that a request came on.
type Conn struct {
	ID       uint64
	Node     int32
	ClientID string
	Host     string
}

// Config of an Engine. Zero durations take Kafka's defaults, but for
// AssignmentInterval, where zero means at once.
type Config struct {
	Log     Log
	Txns    Txns
	Profile wire.Profile // semantics of staging; None: Draft95
	Staging bool         // staging works from the start: see Engine.SetStaging

	Before44 bool // a fetch fails as a whole where a topic of its session is not there

	StatePartitions    int32         // of __share_group_state; default 4
	HeartbeatInterval  time.Duration // default 5 s
	SessionTimeout     time.Duration // default 45 s
	MinSessionTimeout  time.Duration // lowest group config value; default 45 s, or SessionTimeout if that is less
	AssignmentInterval time.Duration // between two assignments; Kafka 4.3 and later: 1 s
	MinLockDuration    time.Duration // lowest group config value; default 1 s
	MaxSessions        int           // share sessions per broker; default 2000
	MaxMembers         int           // of a group; default 200
	OffsetReset        string        // share.auto.offset.reset of groups that set none; default latest, as Kafka
	GroupConfigs       map[string]map[string]string
	Keeps              bool // Changed is called now and then
	// Observe is told of all that happens to records, in order, under the
	// engine's lock: it must be quick and must not call back. Nil: nobody is.
	Observe func(Event)
	Logger  *slog.Logger
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&c.HeartbeatInterval, 5*time.Second)
	set(&c.SessionTimeout, 45*time.Second)
	set(&c.MinSessionTimeout, min(45*time.Second, c.SessionTimeout))
	set(&c.MinLockDuration, time.Second)
	if c.StatePartitions == 0 {
		c.StatePartitions = 4
	}
	if c.MaxSessions == 0 {
		c.MaxSessions = 2000
	}
	if c.MaxMembers == 0 {
		c.MaxMembers = 200
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Kafka's error codes that the engine answers.
const (
	codeNone                     int16 = 0
	codeUnknownServerError       int16 = -1
	codeUnknownTopicOrPartition  int16 = 3
	codeNotLeaderOrFollower      int16 = 6
	codeNotCoordinator           int16 = 16
	codeUnknownMemberID          int16 = 25
	codeUnsupportedVersion       int16 = 35
	codeOperationNotAttempted    int16 = 55
	codeInvalidConfig            int16 = 40
	codeInvalidRequest           int16 = 42
	codeInvalidProducerEpoch     int16 = 47
	codeNonEmptyGroup            int16 = 68
	codeGroupIDNotFound          int16 = 69
	codeGroupMaxSizeReached      int16 = 81
	codeUnknownTopicID           int16 = 100
	codeFencedMemberEpoch        int16 = 110
	codeStaleMemberEpoch         int16 = 113
	codeInvalidRecordState       int16 = 121
	codeShareSessionNotFound     int16 = 122
	codeInvalidShareSessionEpoch int16 = 123
	codeShareSessionLimitReached int16 = 133
)
