package entry

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
)

// FuzzParse: no bytes make Parse panic, what it accepts has exactly one spelling,
// and what it refuses has one of its two reasons.
func FuzzParse(f *testing.F) {
	for _, g := range golden {
		value, err := hex.DecodeString(g.value)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		p, err := Parse(value)
		if err != nil {
			if errors.Is(err, ErrVersion) == errors.Is(err, ErrCorrupt) || p != (Parsed{}) {
				t.Fatalf("%+v, %v", p, err)
			}
			return
		}
		written := appendParsed(t, p)
		if !bytes.Equal(written, value) {
			t.Fatalf("%x was read as %+v, which is written as %x", value, p, written)
		}
		again, err := Parse(written)
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Fatalf("%+v comes back as %+v, %v", p, again, err)
		}
	})
}

// FuzzRoundTrip: whatever can be written comes back as it was.
func FuzzRoundTrip(f *testing.F) {
	f.Add(int64(1), "id", []byte("topic"), int32(0), []byte{1, 2, 3, 4})
	f.Add(int64(1<<40), "", []byte{}, int32(-1), []byte{})
	f.Fuzz(func(t *testing.T, generation int64, id string, topic []byte, partition int32, steps []byte) {
		e := Entry{Generation: generation, TransactionalID: id, Partition: partition}
		copy(e.TopicID[:], topic)
		copy(e.Nonce[:], steps)
		next := int64(0)
		for i := 0; i+1 < len(steps); i += 2 {
			first := next + int64(steps[i])<<(steps[i]%48)
			r := Range{first, first + int64(steps[i+1])}
			e.Ranges = append(e.Ranges, r)
			next = r.Last + 1
		}
		value, err := e.Append(nil)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		p, err := Parse(value)
		if err != nil || p.Entry == nil || !reflect.DeepEqual(*p.Entry, e) {
			t.Fatalf("%+v comes back as %+v, %v", e, p.Entry, err)
		}
	})
}
