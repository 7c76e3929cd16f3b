package shareconsumer

import (
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/sharetxn/sharetxn"
	"github.com/twmb/franz-go/pkg/kerr"
)

// maxNamed is how many offsets an error names.
const maxNamed = 16

// recordsError names records, all of the first one's partition.
func recordsError(err error, rs ...*Record) *sharetxn.RecordsError {
	e := &sharetxn.RecordsError{Topic: rs[0].Topic, Partition: rs[0].Partition, Err: err}
	for _, r := range rs {
		switch {
		case r.Topic != e.Topic || r.Partition != e.Partition || len(e.Offsets) >= maxNamed:
			e.More++
		default:
			e.Offsets = append(e.Offsets, r.Offset)
		}
	}
	return e
}

// errLate is why records are given back that no poll has taken.
var errLate = errors.New("the acquisition lock ran out before a poll")

// offsetsError names offsets of ranges, all of one partition.
func offsetsError(topic string, partition int32, err error, ranges iter.Seq2[int64, int64]) *sharetxn.RecordsError {
	e := &sharetxn.RecordsError{Topic: topic, Partition: partition, Err: err}
	for first, last := range ranges {
		n := last - first + 1
		for o := first; o <= last && len(e.Offsets) < maxNamed; o++ {
			e.Offsets = append(e.Offsets, o)
			n--
		}
		e.More += int(min(n, math.MaxInt32))
	}
	return e
}

func where(r *Record) string { return fmt.Sprintf("%s-%d offset %d", r.Topic, r.Partition, r.Offset) }

func closedError(op, group string) error {
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassFatal, Group: group, Err: sharetxn.ErrClosed}
}

// brokerError is a code of a broker, kept as it came.
func brokerError(op, group string, class sharetxn.Class, code int16) *sharetxn.Error {
	return &sharetxn.Error{Op: op, Class: class, Code: code, FromBroker: true, Group: group, Err: kerr.ErrorForCode(code)}
}
