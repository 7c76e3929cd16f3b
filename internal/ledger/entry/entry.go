// Package entry is what the records of a commit ledger say, and how it is
// written: one record tells which source offsets a transaction decides, another
// which generation the ledger is in. It is pure: no I/O, no clock, no kgo.
package entry

import (
	"fmt"
	"strconv"
)

// TopicPrefix begins the name of every ledger topic; the group's name follows.
const TopicPrefix = "__sharetxn_ledger."

// MaxRanges is how many ranges one Entry holds. An offset takes at most 9 bytes
// and so does a length, so the largest Entry stays below 400 kB: far from the
// 1 MiB that brokers and producers take by default. Split cuts what is larger.
const MaxRanges = 20_000

// Range is a run of source offsets, both ends included.
type Range struct{ First, Last int64 }

func (r Range) String() string {
	if r.First == r.Last {
		return strconv.FormatInt(r.First, 10)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Entry says which offsets of one source partition a transaction decides. It is
// written inside this transaction, so it counts if and only if the transaction
// commits. A transaction may write several for one partition.
type Entry struct {
	// Generation is the ledger generation that the writer works in, from 1.
	Generation int64
	// TransactionalID is for people; the identity is the producer id and epoch
	// of the record's batch.
	TransactionalID string
	// Nonce is the same in all entries of one transaction and in no others.
	Nonce [16]byte
	// TopicID and Partition are the source partition: a topic that was created
	// anew under its old name is another one.
	TopicID   [16]byte
	Partition int32
	// Ranges are the offsets: ascending, disjoint, at least one, at most MaxRanges.
	Ranges []Range
}

// Split cuts e into entries of at most MaxRanges ranges each. Their Ranges share
// e's memory.
func Split(e Entry) []Entry {
	parts := make([]Entry, 0, 1+len(e.Ranges)/MaxRanges)
	for len(e.Ranges) > MaxRanges {
		part := e
		part.Ranges, e.Ranges = e.Ranges[:MaxRanges:MaxRanges], e.Ranges[MaxRanges:]
		parts = append(parts, part)
	}
	return append(parts, e)
}

// Phase is where a generation is in its life.
type Phase uint8

const (
	// Active: processors work in it.
	Active Phase = 1
	// Resetting: the group's offsets are being set, or it is being moved to another
	// guarantee; nobody may work.
	Resetting Phase = 2
)

func (p Phase) String() string {
	switch p {
	case Active:
		return "active"
	case Resetting:
		return "resetting"
	}
	return "Phase(" + strconv.Itoa(int(p)) + ")"
}

// Generation says which generation the ledger is in. It is written outside of
// transactions, into every partition. The highest Number counts, and for one
// Number Active counts more than Resetting. Comparable with ==.
type Generation struct {
	// Number counts from 1. Entries of a lower one do not count any more.
	Number int64
	// Guarantee is the one of the group: "ledger", "staged", "ack-after-commit".
	// A process that works under another must not start.
	Guarantee string
	Phase     Phase
	// ResetTo is where a reset sets the group's offsets, as ListOffsets reads it:
	// milliseconds since 1970, -1 the end, -2 the beginning. 0 while Active, and
	// while Resetting for a move to Guarantee, which sets no offsets.
	ResetTo int64
	// Group is the share group whose ledger this is.
	Group string
}

// Moving reports whether g says that a move to its Guarantee is under way.
func (g Generation) Moving() bool { return g.Phase == Resetting && g.ResetTo == 0 }

// Supersedes reports whether g, read where o was in force, is in force from
// then on. A repetition of o supersedes it too; see also Contradicts.
func (g Generation) Supersedes(o Generation) bool {
	if g.Number != o.Number {
		return g.Number > o.Number
	}
	return g.Phase == o.Phase || g.Phase == Active
}

// Contradicts reports whether both are of one generation and name different
// guarantees: two writers did not know of each other.
func (g Generation) Contradicts(o Generation) bool {
	return g.Number == o.Number && g.Guarantee != o.Guarantee
}
