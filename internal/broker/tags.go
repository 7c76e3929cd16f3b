package broker

import (
	"fmt"
	"reflect"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// unknownTag is a tagged field's number that no schema has; it stands for what
// newer brokers may add to any structure (KIP-482).
const unknownTag = 4711

var unknownValue = []byte("added later")

// tagged gives an answer again with an unknown tagged field in its header and in
// each of its structures. What is not flexible has no place for one.
func tagged(q frame.Request, staging wire.Profile, out []byte) ([]byte, error) {
	var req kmsg.Request
	switch {
	case staging != wire.None && q.Key == staging.Key():
		req = &wire.Request{Profile: staging}
	case q.Key == keyApiVersions && frame.ErrorCode(out) != 0:
		return out, nil // in version 0 then
	default:
		req = kmsg.RequestForKey(q.Key)
	}
	req.SetVersion(q.Version)
	if !req.IsFlexible() {
		return out, nil
	}
	resp, err := frame.ReadResponse(out, req)
	if err != nil {
		return nil, fmt.Errorf("answer of key %d version %d: %w", q.Key, q.Version, err)
	}
	var header []byte
	if q.Key != keyApiVersions { // KIP-511: its header has no tags
		header = appendUnknown(nil)
	}
	var body []byte
	if r, ok := resp.(*wire.Response); ok {
		body = appendTagged(nil, r)
	} else {
		addUnknown(reflect.ValueOf(resp))
		body = resp.AppendTo(nil)
	}
	return frame.AppendAnswer(nil, q.CorrelationID, header, body), nil
}

// addUnknown walks a kmsg answer; each of its structures has room for tags.
func addUnknown(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			addUnknown(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			addUnknown(v.Index(i))
		}
	case reflect.Struct:
		if tags, ok := v.Addr().Interface().(*kmsg.Tags); ok {
			tags.Set(unknownTag, unknownValue)
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				addUnknown(v.Field(i))
			}
		}
	}
}

// appendUnknown ends a structure without tagged fields of its own.
func appendUnknown(dst []byte) []byte {
	dst = kbin.AppendUvarint(dst, 1)
	dst = kbin.AppendUvarint(dst, unknownTag)
	dst = kbin.AppendUvarint(dst, uint32(len(unknownValue)))
	return append(dst, unknownValue...)
}

// appendTagged is TxnShareAcknowledgeResponse with unknown fields; package wire
// keeps none. KIP93's CurrentLeader is a tagged field itself, number 0.
func appendTagged(dst []byte, r *wire.Response) []byte {
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
			if p.CurrentLeader == nil {
				dst = appendUnknown(dst)
				continue
			}
			leader := appendUnknown(kbin.AppendInt32(kbin.AppendInt32(nil, p.CurrentLeader.LeaderID), p.CurrentLeader.LeaderEpoch))
			dst = kbin.AppendUvarint(dst, 2) // tagged fields: 0, and ours
			dst = kbin.AppendUvarint(dst, 0)
			dst = append(kbin.AppendUvarint(dst, uint32(len(leader))), leader...)
			dst = append(dst, appendUnknown(nil)[1:]...) // without the count
		}
		dst = appendUnknown(dst)
	}
	return appendUnknown(dst)
}
