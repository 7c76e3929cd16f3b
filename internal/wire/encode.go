package wire

import (
	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// noTags ends a structure: we write no tagged field but KIP93's CurrentLeader.
const noTags = 0

// Key implements kmsg.Request.
func (r *Request) Key() int16 { return r.Profile.Key() }

// MaxVersion implements kmsg.Request.
func (*Request) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Request.
func (r *Request) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Request.
func (r *Request) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Request.
func (*Request) IsFlexible() bool { return true }

// ResponseKind implements kmsg.Request.
func (r *Request) ResponseKind() kmsg.Response {
	return &Response{Profile: r.Profile, Version: r.Version}
}

// Key implements kmsg.Response.
func (r *Response) Key() int16 { return r.Profile.Key() }

// MaxVersion implements kmsg.Response.
func (*Response) MaxVersion() int16 { return 0 }

// SetVersion implements kmsg.Response.
func (r *Response) SetVersion(v int16) { r.Version = v }

// GetVersion implements kmsg.Response.
func (r *Response) GetVersion() int16 { return r.Version }

// IsFlexible implements kmsg.Response.
func (*Response) IsFlexible() bool { return true }

// RequestKind implements kmsg.Response.
func (r *Response) RequestKind() kmsg.Request {
	return &Request{Profile: r.Profile, Version: r.Version}
}

// Throttle implements kmsg.ThrottleResponse, without which kgo would ignore a
// broker's throttling of this request. It applies after the response (KIP-219).
func (r *Response) Throttle() (int32, bool) { return r.ThrottleMillis, true }

// SetThrottle goes with Throttle.
func (r *Response) SetThrottle(millis int32) { r.ThrottleMillis = millis }

var (
	_ kmsg.Request             = (*Request)(nil)
	_ kmsg.Response            = (*Response)(nil)
	_ kmsg.ThrottleResponse    = (*Response)(nil)
	_ kmsg.SetThrottleResponse = (*Response)(nil)
)

// AppendTo implements kmsg.Request: the same bytes at every call. The batches
// must be valid (acks.Validate). In KIP93, where a batch has one type for its
// whole range, those with several are written as several.
func (r *Request) AppendTo(dst []byte) []byte {
	dst = kbin.AppendCompactNullableString(dst, r.TransactionalID)
	dst = kbin.AppendCompactString(dst, r.GroupID)
	dst = kbin.AppendInt64(dst, r.ProducerID)
	dst = kbin.AppendInt16(dst, r.ProducerEpoch)
	dst = kbin.AppendCompactString(dst, r.MemberID)
	dst = kbin.AppendInt32(dst, r.MemberEpoch)
	dst = kbin.AppendCompactArrayLen(dst, len(r.Topics))
	for _, t := range r.Topics {
		dst = kbin.AppendUuid(dst, t.TopicID)
		dst = kbin.AppendCompactArrayLen(dst, len(t.Partitions))
		for _, p := range t.Partitions {
			dst = kbin.AppendInt32(dst, p.Partition)
			if r.Profile == KIP93 {
				dst = appendUniform(dst, p.Batches)
			} else {
				dst = appendBatches(dst, p.Batches)
			}
			dst = append(dst, noTags)
		}
		dst = append(dst, noTags)
	}
	return append(dst, noTags)
}

func appendBatches(dst []byte, batches []acks.AcknowledgementBatch) []byte {
	dst = kbin.AppendCompactArrayLen(dst, len(batches))
	for _, b := range batches {
		dst = kbin.AppendInt64(dst, b.FirstOffset)
		dst = kbin.AppendInt64(dst, b.LastOffset)
		dst = kbin.AppendCompactArrayLen(dst, len(b.Types))
		for _, t := range b.Types {
			dst = kbin.AppendInt8(dst, int8(t))
		}
		dst = append(dst, noTags)
	}
	return dst
}

func appendUniform(dst []byte, batches []acks.AcknowledgementBatch) []byte {
	n := 0
	for _, b := range batches {
		for range b.Runs() {
			n++
		}
	}
	dst = kbin.AppendCompactArrayLen(dst, n)
	for _, b := range batches {
		for r := range b.Runs() {
			dst = kbin.AppendInt64(dst, r.First)
			dst = kbin.AppendInt64(dst, r.Last)
			dst = kbin.AppendInt8(dst, int8(r.Type))
			dst = append(dst, noTags)
		}
	}
	return dst
}

// AppendTo implements kmsg.Response.
func (r *Response) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt32(dst, r.ThrottleMillis)
	dst = kbin.AppendInt16(dst, r.ErrorCode)
	dst = kbin.AppendCompactArrayLen(dst, len(r.Topics))
	for _, t := range r.Topics {
		dst = kbin.AppendUuid(dst, t.TopicID)
		dst = kbin.AppendCompactArrayLen(dst, len(t.Partitions))
		for _, p := range t.Partitions {
			dst = kbin.AppendInt32(dst, p.Partition)
			dst = kbin.AppendInt16(dst, p.ErrorCode)
			dst = kbin.AppendCompactNullableString(dst, p.ErrorMessage)
			dst = appendLeader(dst, r.Profile, p.CurrentLeader)
		}
		dst = append(dst, noTags)
	}
	return append(dst, noTags)
}

// leaderSize is CurrentLeader's length: two int32 and its own tag count.
const leaderSize = 4 + 4 + 1

func appendLeader(dst []byte, p Profile, l *CurrentLeader) []byte {
	if p != KIP93 || l == nil {
		return append(dst, noTags)
	}
	dst = kbin.AppendUvarint(dst, 1) // one tagged field
	dst = kbin.AppendUvarint(dst, 0) // number 0
	dst = kbin.AppendUvarint(dst, leaderSize)
	dst = kbin.AppendInt32(dst, l.LeaderID)
	dst = kbin.AppendInt32(dst, l.LeaderEpoch)
	return append(dst, noTags)
}
