package acks

import "fmt"

// Error says what is wrong with acknowledgements before anything is sent. It
// is a mistake of the calling code: sharetxn.ClassOf gives ClassUsage.
type Error struct {
	Field       string // "Partition", "FirstOffset", "LastOffset", "Types" or "batches"
	Partition   TopicIDPartition
	First, Last int64 // the offsets it is about; zero with "batches"
	Reason      string
}

func (e *Error) Error() string {
	if e.Field == "batches" {
		return fmt.Sprintf("acks: %v: %s: %s", e.Partition, e.Field, e.Reason)
	}
	return fmt.Sprintf("acks: %v: offsets %d to %d: %s: %s", e.Partition, e.First, e.Last, e.Field, e.Reason)
}

// Usage marks the class of the error for sharetxn.ClassOf.
func (*Error) Usage() bool { return true }
