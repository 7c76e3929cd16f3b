package acks

import (
	"fmt"
)

// Error says what is wrong with acknowledgements before anything is sent. It
// is a mistake of the calling code: sharetxn.ClassOf gives ClassUsage.
type Error struct {
	Field       string // "FirstOffset", "LastOffset", "Types", "batches"
	Partition   TopicIDPartition
	First, Last int64 // the offsets it is about
	Reason      string
}

func (e *Error) Error() string {
	return fmt.Sprintf("acks: %s: offsets %d to %d: %s: %s", e.Partition, e.First, e.Last, e.Field, e.Reason)
}

// Usage marks the class of the error.
func (*Error) Usage() bool { return true }
