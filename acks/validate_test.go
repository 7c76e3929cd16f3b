package acks

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

var orders = TopicIDPartition{TopicID: [16]byte{15: 7}, Topic: "orders", Partition: 2}

func TestValidate(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	type bs = []AcknowledgementBatch
	one := []Type{Accept}
	for _, c := range []struct {
		name        string
		batches     bs
		plain       *Error // nil: fine. Partition is set below
		transaction *Error
	}{
		{"one", bs{{0, 9, one}}, nil, nil},
		{"touching", bs{{0, 9, one}, {10, 10, []Type{Reject}}}, nil, nil},
		{"a type each", bs{{3, 5, []Type{Accept, Reject, Accept}}}, nil, nil},
		{"largest offset", bs{{math.MaxInt64 - 1, math.MaxInt64 - 1, one}}, nil, nil},
		{"longest range", bs{{0, math.MaxInt64 - 1, one}}, nil, nil},

		same("none", bs{}, Error{Field: "batches"}),
		same("negative", bs{{-1, 5, one}}, Error{Field: "FirstOffset", First: -1, Last: 5}),
		same("both negative", bs{{-3, -2, one}}, Error{Field: "FirstOffset", First: -3, Last: -2}),
		same("smallest", bs{{math.MinInt64, math.MaxInt64, one}}, Error{Field: "FirstOffset", First: math.MinInt64, Last: math.MaxInt64}),
		same("inverted", bs{{5, 4, one}}, Error{Field: "LastOffset", First: 5, Last: 4}),
		same("offset behind is no int64", bs{{5, math.MaxInt64, one}}, Error{Field: "LastOffset", First: 5, Last: math.MaxInt64}),
		same("overlap by one", bs{{0, 9, one}, {9, 12, one}}, Error{Field: "FirstOffset", First: 9, Last: 12}),
		same("twice", bs{{0, 9, one}, {0, 9, one}}, Error{Field: "FirstOffset", First: 0, Last: 9}),
		same("unordered", bs{{10, 12, one}, {0, 9, one}}, Error{Field: "FirstOffset", First: 0, Last: 9}),
		same("third overlaps first", bs{{0, 9, one}, {20, 29, one}, {5, 6, one}}, Error{Field: "FirstOffset", First: 5, Last: 6}),
		same("no type", bs{{0, 9, nil}}, Error{Field: "Types", First: 0, Last: 9}),
		same("too few types", bs{{0, 9, []Type{Accept, Accept}}}, Error{Field: "Types", First: 0, Last: 9}),
		same("too many types", bs{{0, 1, []Type{Accept, Accept, Accept}}}, Error{Field: "Types", First: 0, Last: 1}),
		same("two types for one offset", bs{{1, 1, []Type{Accept, Accept}}}, Error{Field: "Types", First: 1, Last: 1}),
		same("unknown type", bs{{4, 6, []Type{Accept, 5, 5}}}, Error{Field: "Types", First: 5, Last: 6}),
		same("negative type", bs{{4, 6, []Type{-1}}}, Error{Field: "Types", First: 4, Last: 6}),

		staged("gap", bs{{4, 6, []Type{Accept, Accept, Gap}}}, Error{Field: "Types", First: 6, Last: 6}),
		staged("release", bs{{0, 3, one}, {4, 6, []Type{Release}}}, Error{Field: "Types", First: 4, Last: 6}),
		staged("renew", bs{{4, 6, []Type{Renew}}}, Error{Field: "Types", First: 4, Last: 6}),
	} {
		t.Run(c.name, func(t *testing.T) {
			wantError(t, "plain", Validate(orders, c.batches), c.plain)
			wantError(t, "transactional", ValidateTransactional(orders, c.batches), c.transaction)
		})
	}
}

type validation = struct {
	name        string
	batches     []AcknowledgementBatch
	plain       *Error
	transaction *Error
}

func same(name string, batches []AcknowledgementBatch, e Error) validation {
	return validation{name, batches, &e, &e}
}

func staged(name string, batches []AcknowledgementBatch, e Error) validation {
	return validation{name, batches, nil, &e}
}

// wantError compares all but the reason, which must be there, and wants the
// text to name the field, the partition and the offsets.
func wantError(t *testing.T, use string, err error, want *Error) {
	t.Helper()
	if want == nil {
		if err != nil {
			t.Errorf("%s use refused: %v", use, err)
		}
		return
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%s use gave %v, want an *Error about %s", use, err, want.Field)
	}
	if e.Field != want.Field || e.Partition != orders || e.First != want.First || e.Last != want.Last || e.Reason == "" || !e.Usage() {
		t.Errorf("%s use gave %+v, want field %s, offsets %d to %d", use, *e, want.Field, want.First, want.Last)
	}
	parts := []string{e.Field, "orders-2"}
	if e.Field != "batches" {
		parts = append(parts, fmt.Sprintf("offsets %d to %d", e.First, e.Last))
	}
	for _, part := range parts {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%q does not name %q", e, part)
		}
	}
}

func TestValidatePartition(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	var e *Error
	err := Validate(TopicIDPartition{Topic: "orders", Partition: -1}, []AcknowledgementBatch{{0, 0, []Type{Accept}}})
	if !errors.As(err, &e) || e.Field != "Partition" {
		t.Errorf("partition -1 gives %v", err)
	}
}
