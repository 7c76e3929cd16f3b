package audit

// Facts are what the brokers hold.
type Facts struct {
	Records  map[string][]Record // by topic, as a read_committed reader sees them
	Unstable []string            // partitions whose last stable offset is below the high watermark
	Progress map[int32]Progress  // of the group, for every source partition
	Members  int                 // of the group
	Open     int                 // transactions under way
	Staged   int64               // acknowledgements
	Commits  int                 // transactions with a commit marker on an output topic
	Aborts   int                 // the same for aborts
}

// Record is one record on a topic.
type Record struct {
	Partition          int32
	Key, Value, Reason string // Reason of a dead letter
}

// Progress is a share partition. Start and Lag are -1 if the group never read
// it; End is the high watermark.
type Progress struct{ Start, End, Lag int64 }
