package journal

import (
	"errors"
	"testing"
)

// Whatever a file holds, reading ends, and what it gives is what a file of the
// same changes holds: so far as it is whole, byte for byte.
func FuzzRead(f *testing.F) {
	seed := []byte(magic)
	f.Add([]byte{})
	f.Add([]byte(magic[:7]))
	for _, c := range []change{{key: "a", value: []byte("1")}, {key: "", value: nil}, {key: "a", gone: true}} {
		seed = appendChange(seed, c)
		f.Add(append([]byte{}, seed...))
	}
	f.Add(seed[:len(seed)-3])
	f.Fuzz(func(t *testing.T, raw []byte) {
		again := []byte(magic)
		whole, err := read(raw, func(c change) { again = appendChange(again, c) })
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if whole > len(raw) || whole > 0 && string(raw[:whole]) != string(again) {
			t.Fatalf("%d of %d bytes are whole and say %q", whole, len(raw), again)
		}
	})
}
