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

// AppendTo implements kmsg.Request. In KIP93 a batch has one type for its whole
// range: pass batches through Uniform first, only the first type is written.
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
			dst = kbin.AppendCompactArrayLen(dst, len(p.Batches))
			for _, b := range p.Batches {
				dst = kbin.AppendInt64(dst, b.FirstOffset)
				dst = kbin.AppendInt64(dst, b.LastOffset)
				dst = appendTypes(dst, r.Profile, b.Types)
				dst = append(dst, noTags)
			}
			dst = append(dst, noTags)
		}
		dst = append(dst, noTags)
	}
	return append(dst, noTags)
}

func appendTypes(dst []byte, p Profile, types []acks.Type) []byte {
	if p == KIP93 {
		var t acks.Type // an empty list reads as Gap, which no broker of the KIP's text takes
		if len(types) > 0 {
			t = types[0]
		}
		return kbin.AppendInt8(dst, int8(t))
	}
	dst = kbin.AppendCompactArrayLen(dst, len(types))
	for _, t := range types {
		dst = kbin.AppendInt8(dst, int8(t))
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
