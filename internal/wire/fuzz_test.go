package wire

import (
	"errors"
	"testing"
)

// FuzzRequest and FuzzResponse read any bytes in either profile. What is
// refused must be ErrMalformed; what is taken must come back the same after it
// is written and read again, and must not be larger than the bytes can tell.
func FuzzRequest(f *testing.F) {
	seed(f, func(m message) bool { _, ok := m.(*Request); return ok })
	f.Fuzz(func(t *testing.T, kip93 bool, src []byte) {
		reread(t, &Request{Profile: profile(kip93)}, &Request{Profile: profile(kip93)}, src)
	})
}

func FuzzResponse(f *testing.F) {
	seed(f, func(m message) bool { _, ok := m.(*Response); return ok })
	f.Fuzz(func(t *testing.T, kip93 bool, src []byte) {
		reread(t, &Response{Profile: profile(kip93)}, &Response{Profile: profile(kip93)}, src)
	})
}

func profile(kip93 bool) Profile {
	if kip93 {
		return KIP93
	}
	return Draft95
}

// seed adds the vectors, each in both profiles, to the corpus under testdata.
func seed(f *testing.F, kind func(message) bool) {
	for _, v := range vectors() {
		if kind(v.message) {
			f.Add(false, v.bytes(f))
			f.Add(true, v.bytes(f))
		}
	}
}

func reread(t *testing.T, first, second message, src []byte) {
	if err := first.ReadFrom(src); err != nil {
		if !errors.Is(err, ErrMalformed) {
			t.Fatalf("refused with %v", err)
		}
		return
	}
	again := first.AppendTo(nil)
	if len(again) > len(src) {
		t.Fatalf("%d bytes became %d", len(src), len(again))
	}
	if err := second.ReadFrom(again); err != nil {
		t.Fatalf("own bytes refused: %v", err)
	}
	if !equal(first, second) {
		t.Fatalf("read %+v, written and read again %+v", first, second)
	}
}
