package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/sharetxn/sharetxn/acks"
)

// ErrMalformed is wrapped by every decoding error. Bytes of a broker, or of a
// client, that are not exactly a message of the profile give it: cut short,
// with bytes left over, with lengths that the input cannot hold.
var ErrMalformed = errors.New("wire: malformed TxnShareAcknowledge")

// The fewest bytes an element can take, its tag count included. An array may
// not claim more elements than the bytes left can hold, so that memory grows
// only with the input.
const (
	minTopic             = 16 + 1 + 1
	minRequestPartition  = 4 + 1 + 1
	minBatch             = 8 + 8 + 1 + 1
	minResponsePartition = 4 + 2 + 1 + 1
	minType              = 1
)

// reader takes fields off src; after the first error everything it gives is
// zero and the error stays.
type reader struct {
	src []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
	r.src = nil
}

func (r *reader) take(n int, what string) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > len(r.src) {
		r.fail("%s wants %d bytes, %d left", what, n, len(r.src))
		return nil
	}
	b := r.src[:n]
	r.src = r.src[n:]
	return b
}

func (r *reader) int8(what string) int8 {
	if b := r.take(1, what); b != nil {
		return int8(b[0])
	}
	return 0
}

func (r *reader) int16(what string) int16 {
	if b := r.take(2, what); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) int32(what string) int32 {
	if b := r.take(4, what); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) int64(what string) int64 {
	if b := r.take(8, what); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *reader) uuid(what string) (id [16]byte) {
	copy(id[:], r.take(16, what))
	return id
}

// uvarint is Kafka's unsigned varint: at most five bytes, at most 32 bits.
func (r *reader) uvarint(what string) uint32 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.src)
	if n <= 0 || n > 5 || v > 1<<32-1 {
		r.fail("%s is no unsigned varint", what)
		return 0
	}
	r.src = r.src[n:]
	return uint32(v)
}

// array reads a compact array that may not be null.
func array[E any](r *reader, minElement int, what string, element func() E) []E {
	n := r.uvarint(what)
	if r.err != nil {
		return nil
	}
	if n == 0 {
		r.fail("%s is null", what)
		return nil
	}
	n--
	if uint64(n)*uint64(minElement) > uint64(len(r.src)) {
		r.fail("%s claims %d elements, %d bytes left", what, n, len(r.src))
		return nil
	}
	out := make([]E, 0, n)
	for range n {
		e := element()
		if r.err != nil {
			return nil
		}
		out = append(out, e)
	}
	return out
}

func (r *reader) nullableString(what string) *string {
	n := r.uvarint(what)
	if r.err != nil || n == 0 {
		return nil
	}
	b := r.take(int(n-1), what)
	if r.err != nil {
		return nil
	}
	if !utf8.Valid(b) {
		r.fail("%s is not UTF-8", what)
		return nil
	}
	s := string(b)
	return &s
}

func (r *reader) string(what string) string {
	s := r.nullableString(what)
	if s == nil {
		if r.err == nil {
			r.fail("%s is null", what)
		}
		return ""
	}
	return *s
}

// tags skips tagged fields, giving those to known: a newer server may add some
// on any level.
func (r *reader) tags(known func(number uint32, value []byte)) {
	for n := r.uvarint("tag count"); n > 0 && r.err == nil; n-- {
		number := r.uvarint("tag number")
		size := r.uvarint("tag size")
		value := r.take(int(size), "tag value")
		if known != nil && r.err == nil {
			known(number, value)
		}
	}
}

func (r *reader) end() error {
	if r.err == nil && len(r.src) > 0 {
		r.fail("%d bytes left over", len(r.src))
	}
	return r.err
}

// ReadFrom implements kmsg.Request. Strict: see ErrMalformed. Types are not
// judged here, neither their values nor their number, and neither are offsets.
func (r *Request) ReadFrom(src []byte) error {
	in := reader{src: src}
	out := Request{Profile: r.Profile, Version: r.Version}
	out.TransactionalID = in.nullableString("TransactionalId")
	out.GroupID = in.string("GroupId")
	out.ProducerID = in.int64("ProducerId")
	out.ProducerEpoch = in.int16("ProducerEpoch")
	out.MemberID = in.string("MemberId")
	out.MemberEpoch = in.int32("MemberEpoch")
	out.Topics = array(&in, minTopic, "Topics", func() RequestTopic {
		t := RequestTopic{TopicID: in.uuid("TopicId")}
		t.Partitions = array(&in, minRequestPartition, "Partitions", func() RequestPartition {
			return in.requestPartition(r.Profile)
		})
		in.tags(nil)
		return t
	})
	in.tags(nil)
	if err := in.end(); err != nil {
		return err
	}
	*r = out
	return nil
}

func (r *reader) requestPartition(profile Profile) RequestPartition {
	p := RequestPartition{Partition: r.int32("PartitionIndex")}
	p.Batches = array(r, minBatch, "AcknowledgementBatches", func() acks.AcknowledgementBatch {
		b := acks.AcknowledgementBatch{FirstOffset: r.int64("FirstOffset"), LastOffset: r.int64("LastOffset")}
		if profile == KIP93 {
			b.Types = []acks.Type{acks.Type(r.int8("AcknowledgeType"))}
		} else {
			b.Types = array(r, minType, "AcknowledgeTypes", func() acks.Type {
				return acks.Type(r.int8("AcknowledgeTypes"))
			})
		}
		r.tags(nil)
		return b
	})
	r.tags(nil)
	return p
}

// ReadFrom implements kmsg.Response. Strict: see ErrMalformed.
func (r *Response) ReadFrom(src []byte) error {
	in := reader{src: src}
	out := Response{Profile: r.Profile, Version: r.Version}
	out.ThrottleMillis = in.int32("ThrottleTimeMs")
	out.ErrorCode = in.int16("ErrorCode")
	out.Topics = array(&in, minTopic, "Responses", func() ResponseTopic {
		t := ResponseTopic{TopicID: in.uuid("TopicId")}
		t.Partitions = array(&in, minResponsePartition, "Partitions", func() ResponsePartition {
			return in.responsePartition(r.Profile)
		})
		in.tags(nil)
		return t
	})
	in.tags(nil)
	if err := in.end(); err != nil {
		return err
	}
	*r = out
	return nil
}

func (r *reader) responsePartition(profile Profile) ResponsePartition {
	p := ResponsePartition{
		Partition:    r.int32("PartitionIndex"),
		ErrorCode:    r.int16("ErrorCode"),
		ErrorMessage: r.nullableString("ErrorMessage"),
	}
	r.tags(func(number uint32, value []byte) {
		if profile == KIP93 && number == 0 {
			p.CurrentLeader = r.leader(value)
		}
	})
	return p
}

// leader reads the tagged field in its own bytes and passes its error on.
func (r *reader) leader(value []byte) *CurrentLeader {
	in := reader{src: value}
	l := &CurrentLeader{LeaderID: in.int32("LeaderId"), LeaderEpoch: in.int32("LeaderEpoch")}
	in.tags(nil)
	if err := in.end(); err != nil {
		r.err, r.src = err, nil
		return nil
	}
	return l
}
