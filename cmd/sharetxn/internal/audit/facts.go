package audit

// Facts are what the brokers hold.
type Facts struct {
	Records  map[string][]Record // by topic, as a read_committed reader sees them
	Unstable []string            // partitions whose last stable offset is below the high watermark
	Progress map[int32]Progress  // of the group, for every source partition
	Members  int                 // of the group
	Open     int                 // transactions under way
	Commits  int                 // transactions with a commit marker on an output topic
	Aborts   int                 // the same for aborts
	Inside
}

// Inside is what the brokers know of a group and no request of Kafka's tells.
type Inside struct {
	Staged int64 // acknowledgements
	// Conceded are records whose outputs may be there more than once by the words
	// of the profile's own text, with the window that it names.
	Conceded map[Source]string
	Wrong    []string // by the brokers' history of records and transactions, in words
}

// Source is a place on the source topic.
type Source struct {
	Partition int32
	Offset    int64
}

// Record is one record on a topic, with its place there.
type Record struct {
	Source
	Key, Value, Reason string // Reason of a dead letter
}

// Progress is a share partition. Start and Lag are -1 if the group never read
// it; End is the high watermark.
type Progress struct{ Start, End, Lag int64 }
