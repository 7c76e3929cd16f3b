package index

import (
	"errors"
	"fmt"
)

// ErrNoGeneration: no record of the generation in force was read.
var ErrNoGeneration = errors.New("ledger has no generation record")

// ContinuityError is an offset that was told out of order. The reader is wrong:
// what lies between may have decided anything.
type ContinuityError struct {
	Partition int32
	Next, At  int64
}

func (e *ContinuityError) Error() string {
	return fmt.Sprintf("ledger partition %d: read offset %d where %d was due", e.Partition, e.At, e.Next)
}

// MisplacedError is an entry in the partition of another source partition: its
// writer sees other entries than those who read where it belongs, so both may
// publish.
type MisplacedError struct {
	Partition       int32
	At              int64
	Source          int32
	TransactionalID string
}

func (e *MisplacedError) Error() string {
	return fmt.Sprintf("ledger partition %d, offset %d: entry of %q is for source partition %d: its producer does not keep the partition of its records",
		e.Partition, e.At, e.TransactionalID, e.Source)
}

// EpochError is a record of a producer id whose open transaction can only be
// ended by a marker of the epoch after it, and was not: a broker lost that marker
// and the producer has not repaired it, the log is not one of transaction.version
// 2, or part of it was lost. Abort: the record is an abort marker, so that readers
// take the open transaction for aborted, whatever became of it elsewhere.
type EpochError struct {
	Partition int32
	At        int64
	ID        int64
	Open, Got int16
	Abort     bool
}

func (e *EpochError) Error() string {
	what := "a record"
	if e.Abort {
		what = "an abort"
	}
	return fmt.Sprintf("ledger partition %d, offset %d: %s of producer %d has epoch %d, but its transaction of epoch %d was not ended by a marker of epoch %d. "+
		"A broker lost that marker, as Kafka 4.3.1 and Kafka 4.4.0 do while a partition has no leader, and its producer was gone before it could write it again; or transaction.version is below 2, or records were lost. "+
		"So it is not known here whether the transaction's outputs were committed. Read them for that transaction's entry (kafka-dump-log or a reader of uncommitted data shows the producer id and epoch), "+
		"then set the group to where it is to go on with `sharetxn ledger reset`, and give the ledger and the output topics a replication factor of 3",
		e.Partition, e.At, what, e.ID, e.Got, e.Open, int32(e.Open)+1)
}

// GroupError is a generation record of another group's ledger.
type GroupError struct {
	Partition   int32
	At          int64
	Group, Want string
}

func (e *GroupError) Error() string {
	return fmt.Sprintf("ledger partition %d, offset %d: the ledger of group %q, not of %q", e.Partition, e.At, e.Group, e.Want)
}

// ClashError tells of two records of one generation that name different
// guarantees. The next generation ends it.
type ClashError struct {
	Partition  int32
	At         int64
	Number     int64
	Guarantees [2]string
}

func (e *ClashError) Error() string {
	return fmt.Sprintf("ledger partition %d, offset %d: generation %d was written with guarantee %q and with %q", e.Partition, e.At, e.Number, e.Guarantees[0], e.Guarantees[1])
}
