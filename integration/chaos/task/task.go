// Package task is the work that a chaos trial gives its members: what a source
// record asks for, and the outputs that it must have. It is pure, so that members
// and the verifier come to the same, each from the records that it has read itself.
package task

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Kind is what a source record does to who handles it.
type Kind byte

const (
	Plain  Kind = 'p' // it has outputs
	Reject Kind = 'r' // the handler rejects it
	Fail   Kind = 'f' // the handler fails with it, every time
	Kill   Kind = 'k' // the handler's process dies with it, every time
)

// Poison is how often a record is not plain: one of that many of each kind; 0 for
// none.
type Poison struct {
	Reject, Fail, Kill int
	Kills              int // no more than that of the last kind; 0: there is no limit
}

// kind of the n-th record. The kinds are apart by the fractions of their distance;
// where two fall together all the same, the worse one counts.
func (p Poison) kind(n int) Kind {
	every := func(distance, part int) bool { return distance > 0 && n%distance == distance/part }
	switch {
	case every(p.Kill, 2) && (p.Kills == 0 || n < p.Kills*p.Kill):
		return Kill
	case every(p.Fail, 3):
		return Fail
	case every(p.Reject, 4):
		return Reject
	}
	return Plain
}

// size of a source record's value, in bytes.
const size = 100

// Value of the n-th source record.
func (p Poison) Value(n int) []byte {
	v := make([]byte, 9, size)
	v[0] = byte(p.kind(n))
	binary.BigEndian.PutUint64(v[1:], uint64(n))
	return v[:size]
}

// KindOf a source record's value. What is no source record's is plain.
func KindOf(value []byte) Kind {
	if len(value) == size {
		switch k := Kind(value[0]); k {
		case Reject, Fail, Kill:
			return k
		case Plain:
		}
	}
	return Plain
}

// At is the place of a source record.
type At struct {
	Topic     string
	Partition int32
	Offset    int64
}

func (a At) String() string { return fmt.Sprintf("%s/%d@%d", a.Topic, a.Partition, a.Offset) }

// Tag is the value of an output or of a dead letter: which source record it is
// of, and made from which contents.
type Tag struct {
	Round  int // in which the group's offsets were reset so many times; from 1
	At     At
	Index  int // among the outputs of the source record, from 1; 0: its dead letter
	Digest uint64
}

// Outputs is how many a plain source record has.
func Outputs(value []byte) int {
	n := 0
	for _, b := range value {
		n += int(b)
	}
	return 1 + n%3
}

// Digest is of the contents of a source record.
func Digest(value []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(value) // never fails
	return h.Sum64()
}

// Encode makes a value of the tag.
func (t Tag) Encode() []byte {
	return fmt.Appendf(nil, "%d %s %d %d %d %x", t.Round, t.At.Topic, t.At.Partition, t.At.Offset, t.Index, t.Digest)
}

// Parse reads what Encode has made.
func Parse(value []byte) (t Tag, err error) {
	f := strings.Split(string(value), " ")
	if len(f) != 6 {
		return t, fmt.Errorf("%q is not a tag", value)
	}
	t.At.Topic = f[1]
	num := func(s string, base, bits int) (n uint64) {
		if err == nil {
			if n, err = strconv.ParseUint(s, base, bits); err != nil {
				err = fmt.Errorf("%q is not a tag: %w", value, err)
			}
		}
		return n
	}
	t.Round = int(num(f[0], 10, 31))
	t.At.Partition = int32(num(f[2], 10, 31))
	t.At.Offset = int64(num(f[3], 10, 63))
	t.Index = int(num(f[4], 10, 31))
	t.Digest = num(f[5], 16, 64)
	return t, err
}
