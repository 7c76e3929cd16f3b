package entry

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// A record's value is the version, the kind, and then the fields in the order in
// which the types have them. Numbers are varints; ResetTo, which may be
// negative, is zigzag; a string is its length and its bytes. Of a range the
// distance from the end of the one before is written, and the length less one.
// There is exactly one way to write a value.
const (
	version = 1

	kindEntry      = 1
	kindGeneration = 2
)

// maxString is what Kafka's strings hold, in bytes.
const maxString = math.MaxInt16

// Append appends the value of e's record to b. Errors wrap ErrInvalid; then b is
// returned as it was.
func (e Entry) Append(b []byte) ([]byte, error) {
	if wrong := e.check(); wrong != "" {
		return b, fmt.Errorf("%w: %s", ErrInvalid, wrong)
	}
	b = append(b, version, kindEntry)
	b = binary.AppendUvarint(b, uint64(e.Generation))
	b = appendString(b, e.TransactionalID)
	b = append(b, e.Nonce[:]...)
	b = append(b, e.TopicID[:]...)
	b = binary.AppendUvarint(b, uint64(e.Partition))
	b = binary.AppendUvarint(b, uint64(len(e.Ranges)))
	next := int64(0)
	for _, r := range e.Ranges {
		b = binary.AppendUvarint(b, uint64(r.First-next))
		b = binary.AppendUvarint(b, uint64(r.Last-r.First))
		next = r.Last + 1
	}
	return b, nil
}

// Append appends the value of g's record to b. Errors wrap ErrInvalid; then b is
// returned as it was.
func (g Generation) Append(b []byte) ([]byte, error) {
	if wrong := g.check(); wrong != "" {
		return b, fmt.Errorf("%w: %s", ErrInvalid, wrong)
	}
	b = append(b, version, kindGeneration)
	b = binary.AppendUvarint(b, uint64(g.Number))
	b = appendString(b, g.Guarantee)
	b = append(b, byte(g.Phase))
	b = binary.AppendVarint(b, g.ResetTo)
	return appendString(b, g.Group), nil
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// Parsed is a record: exactly one of its fields is set.
type Parsed struct {
	Entry      *Entry
	Generation *Generation
}

// Parse reads a record's value. It keeps nothing of b. Errors wrap ErrVersion or
// ErrCorrupt.
func Parse(b []byte) (Parsed, error) {
	switch {
	case len(b) == 0:
		return Parsed{}, fmt.Errorf("%w: it is empty", ErrCorrupt)
	case b[0] != version:
		return Parsed{}, fmt.Errorf("%w (version %d)", ErrVersion, b[0])
	case len(b) == 1:
		return Parsed{}, fmt.Errorf("%w: it ends after its version", ErrCorrupt)
	}
	var (
		p   Parsed
		err error
		r   = reader{rest: b[2:]}
	)
	switch kind := b[1]; kind {
	case kindEntry:
		e := r.entry()
		p.Entry, err = &e, r.end(e.check)
	case kindGeneration:
		g := r.generation()
		if !r.short && g.Phase > Resetting {
			return Parsed{}, fmt.Errorf("%w (%v)", ErrVersion, g.Phase)
		}
		p.Generation, err = &g, r.end(g.check)
	default:
		return Parsed{}, fmt.Errorf("%w (kind %d)", ErrVersion, kind)
	}
	if err != nil {
		return Parsed{}, err
	}
	return p, nil
}

// check names the first field that has a value which cannot be written, "" if there is none.
func (e *Entry) check() string {
	switch {
	case e.Generation < 1:
		return fmt.Sprintf("Generation %d is below 1", e.Generation)
	case e.TransactionalID == "" || len(e.TransactionalID) > maxString:
		return fmt.Sprintf("TransactionalID has %d bytes, 1 to %d may be", len(e.TransactionalID), maxString)
	case e.Partition < 0:
		return fmt.Sprintf("Partition %d is negative", e.Partition)
	case len(e.Ranges) == 0 || len(e.Ranges) > MaxRanges:
		return fmt.Sprintf("%d Ranges, 1 to %d may be", len(e.Ranges), MaxRanges)
	}
	last := int64(-1)
	for _, r := range e.Ranges {
		if r.First <= last || r.Last < r.First || r.Last == math.MaxInt64 {
			return fmt.Sprintf("range %d to %d, after one that ends at %d, is not ascending, disjoint and below the largest offset", r.First, r.Last, last)
		}
		last = r.Last
	}
	return ""
}

func (g *Generation) check() string {
	switch {
	case g.Number < 1:
		return fmt.Sprintf("Number %d is below 1", g.Number)
	case g.Guarantee == "" || len(g.Guarantee) > maxString:
		return fmt.Sprintf("Guarantee has %d bytes, 1 to %d may be", len(g.Guarantee), maxString)
	case g.Phase != Active && g.Phase != Resetting:
		return fmt.Sprintf("%v is unknown", g.Phase)
	case g.Phase == Active && g.ResetTo != 0:
		return fmt.Sprintf("ResetTo is %d while active", g.ResetTo)
	case g.ResetTo < -2:
		return fmt.Sprintf("ResetTo %d is below -2", g.ResetTo)
	case g.Group == "" || len(g.Group) > maxString:
		return fmt.Sprintf("Group has %d bytes, 1 to %d may be", len(g.Group), maxString)
	}
	return ""
}

// reader takes fields off the front of a value; once short, all further fields
// are zero.
type reader struct {
	rest  []byte
	short bool // ended too early, or a number is not written the one way
}

func (r *reader) entry() (e Entry) {
	e.Generation = r.number(math.MaxInt64)
	e.TransactionalID = r.string()
	copy(e.Nonce[:], r.bytes(len(e.Nonce)))
	copy(e.TopicID[:], r.bytes(len(e.TopicID)))
	e.Partition = int32(r.number(math.MaxInt32))
	n := r.number(MaxRanges)
	if n > int64(len(r.rest))/2 { // a range has two bytes at least: nothing is allocated for what cannot be there
		r.short = true
	}
	if r.short {
		return e
	}
	e.Ranges = make([]Range, n)
	next := int64(0)
	for i := range e.Ranges {
		first := next + r.number(math.MaxInt64-1-next)
		last := first + r.number(math.MaxInt64-1-first)
		e.Ranges[i] = Range{first, last}
		next = last + 1
	}
	return e
}

func (r *reader) generation() (g Generation) {
	g.Number = r.number(math.MaxInt64)
	g.Guarantee = r.string()
	if b := r.bytes(1); b != nil {
		g.Phase = Phase(b[0])
	}
	u := r.uvarint()
	g.ResetTo = int64(u>>1) ^ -int64(u&1)
	g.Group = r.string()
	return g
}

// end gives what is wrong with the value as a whole.
func (r *reader) end(check func() string) error {
	switch {
	case r.short:
		return fmt.Errorf("%w: it is cut short, or a number is none", ErrCorrupt)
	case len(r.rest) > 0:
		return fmt.Errorf("%w: %d bytes follow its end", ErrCorrupt, len(r.rest))
	}
	if wrong := check(); wrong != "" {
		return fmt.Errorf("%w: %s", ErrCorrupt, wrong)
	}
	return nil
}

// number reads a number from 0 to limit.
func (r *reader) number(limit int64) int64 {
	u := r.uvarint()
	if limit < 0 || u > uint64(limit) {
		r.short = true
		return 0
	}
	return int64(u)
}

func (r *reader) uvarint() uint64 {
	u, n := binary.Uvarint(r.rest)
	if n <= 0 || n > 1 && r.rest[n-1] == 0 || r.short { // a last byte of 0 says nothing: it could have been left out
		r.short = true
		return 0
	}
	r.rest = r.rest[n:]
	return u
}

func (r *reader) string() string { return string(r.bytes(int(r.number(maxString)))) }

func (r *reader) bytes(n int) []byte {
	if r.short || n > len(r.rest) {
		r.short = true
		return nil
	}
	b := slices.Clip(r.rest[:n])
	r.rest = r.rest[n:]
	return b
}
