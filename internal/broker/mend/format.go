package mend

import "time"

// kfake's files, as far as they are read or written here.

const version = 1

type topicsFile struct {
	Topics []struct {
		Name       string `json:"name"`
		ID         []byte `json:"id"`
		Partitions int32  `json:"partitions"`
	} `json:"topics"`
}

type snapshotFile struct {
	Version          int           `json:"version"`
	HighWatermark    int64         `json:"high_watermark"`
	LastStableOffset int64         `json:"last_stable_offset"`
	LogStartOffset   int64         `json:"log_start_offset"`
	Epoch            int32         `json:"epoch"`
	LeaderNode       int32         `json:"leader_node"`
	MaxTimestamp     int64         `json:"max_timestamp"`
	CreatedAt        time.Time     `json:"created_at"`
	AbortedTxns      []abortedTxn  `json:"aborted_txns,omitempty"`
	Segments         []segmentInfo `json:"segments"`
}

type abortedTxn struct {
	ProducerID  int64 `json:"producer_id"`
	FirstOffset int64 `json:"first_offset"`
	LastOffset  int64 `json:"last_offset"`
}

type segmentInfo struct {
	BaseOffset int64 `json:"base_offset"`
	Size       int64 `json:"size"`
	MinEpoch   int32 `json:"min_epoch,omitempty"`
	MaxEpoch   int32 `json:"max_epoch,omitempty"`
}

type windowsFile struct {
	Version int           `json:"version"`
	Windows []windowEntry `json:"windows"`
}

type windowEntry struct {
	ProducerID int64                 `json:"pid"`
	Topic      string                `json:"topic"`
	Partition  int32                 `json:"partition"`
	Entries    [windowSize]seenBatch `json:"entries"`
	Count      uint8                 `json:"count"`
	At         uint8                 `json:"at"`
	Epoch      int16                 `json:"epoch"`
	Seen       bool                  `json:"seen"`
	NextSeq    int32                 `json:"next_seq"`
}

type seenBatch struct {
	FirstSeq int32 `json:"first_seq"`
	NextSeq  int32 `json:"next_seq"`
	Offset   int64 `json:"offset"`
}

type idEntry struct {
	Type       string `json:"type"`
	ProducerID int64  `json:"pid"`
	Epoch      int16  `json:"epoch"`
}

type sessionFile struct {
	ShutdownAt time.Time     `json:"shutdownAt"`
	InProgress []openTxnFile `json:"inProgressTxns,omitempty"`
}

type openTxnFile struct {
	ProducerID   int64                      `json:"pid"`
	FirstOffsets map[string]map[int32]int64 `json:"txPartFirstOffsets"`
}
