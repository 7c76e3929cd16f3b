package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// message is what both halves of the RPC are to kmsg.
type message interface {
	Key() int16
	MaxVersion() int16
	SetVersion(int16)
	GetVersion() int16
	IsFlexible() bool
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
}

// vector is a message and its bytes, worked out by hand from the schema
// (reference: KIP-1289, and the Kafka protocol guide for compact and tagged
// fields: lengths are plus one, zero is null). Each line is one field.
type vector struct {
	name    string
	message message
	fields  []string // hex, then what it is
}

func (v vector) bytes(t testing.TB) []byte {
	t.Helper()
	var out []byte
	for _, f := range v.fields {
		digits, _, _ := strings.Cut(f, ";")
		b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			t.Fatalf("%s: %q: %v", v.name, f, err)
		}
		out = append(out, b...)
	}
	return out
}

func ptr[T any](v T) *T { return &v }

var (
	topicA = [16]byte{0x0a, 15: 0x01}
	topicB = [16]byte{0x0b, 15: 0x02}
)

func vectors() []vector {
	return []vector{{
		name:    "handshake draft95",
		message: NewHandshake(Draft95),
		fields:  handshakeFields,
	}, {
		name:    "handshake kip93",
		message: NewHandshake(KIP93),
		fields:  handshakeFields,
	}, {
		name: "request draft95",
		message: &Request{
			Profile:         Draft95,
			TransactionalID: ptr("tx-1"),
			GroupID:         "g",
			ProducerID:      0x0102030405060708,
			ProducerEpoch:   7,
			MemberID:        "member",
			MemberEpoch:     258,
			Topics: []RequestTopic{
				{TopicID: topicA, Partitions: []RequestPartition{
					{Partition: 0, Batches: []acks.AcknowledgementBatch{
						{FirstOffset: 5, LastOffset: 14, Types: []acks.Type{acks.Accept}},
						{FirstOffset: 15, LastOffset: 17, Types: []acks.Type{acks.Accept, acks.Reject, acks.Gap}},
					}},
					{Partition: 300, Batches: []acks.AcknowledgementBatch{
						{FirstOffset: 1 << 40, LastOffset: 1 << 40, Types: []acks.Type{acks.Reject}},
					}},
				}},
				{TopicID: topicB, Partitions: []RequestPartition{}},
			},
		},
		fields: []string{
			"05 74782d31             ; TransactionalId: 4 bytes, tx-1",
			"02 67                   ; GroupId: 1 byte, g",
			"0102030405060708        ; ProducerId",
			"0007                    ; ProducerEpoch",
			"07 6d656d626572         ; MemberId: 6 bytes, member",
			"00000102                ; MemberEpoch",
			"03                      ; Topics: 2",
			"  0a000000000000000000000000000001 ; TopicId",
			"  03                    ; Partitions: 2",
			"    00000000            ; PartitionIndex",
			"    03                  ; AcknowledgementBatches: 2",
			"      0000000000000005  ; FirstOffset",
			"      000000000000000e  ; LastOffset",
			"      02 01             ; AcknowledgeTypes: 1, accept",
			"      00                ; no tags",
			"      000000000000000f  ; FirstOffset",
			"      0000000000000011  ; LastOffset",
			"      04 01 03 00       ; AcknowledgeTypes: 3, accept, reject, gap",
			"      00                ; no tags",
			"    00                  ; no tags",
			"    0000012c            ; PartitionIndex",
			"    02                  ; AcknowledgementBatches: 1",
			"      0000010000000000  ; FirstOffset",
			"      0000010000000000  ; LastOffset",
			"      02 03             ; AcknowledgeTypes: 1, reject",
			"      00                ; no tags",
			"    00                  ; no tags",
			"  00                    ; no tags",
			"  0b000000000000000000000000000002 ; TopicId",
			"  01                    ; Partitions: 0",
			"  00                    ; no tags",
			"00                      ; no tags",
		},
	}, {
		name: "request kip93",
		message: &Request{
			Profile:         KIP93,
			TransactionalID: ptr("tx-1"),
			GroupID:         "g",
			ProducerID:      9,
			ProducerEpoch:   32767,
			MemberID:        "m",
			MemberEpoch:     1,
			Topics: []RequestTopic{
				{TopicID: topicA, Partitions: []RequestPartition{
					{Partition: 1, Batches: []acks.AcknowledgementBatch{
						{FirstOffset: 5, LastOffset: 14, Types: []acks.Type{acks.Accept}},
						{FirstOffset: 15, LastOffset: 15, Types: []acks.Type{acks.Reject}},
					}},
				}},
			},
		},
		fields: []string{
			"05 74782d31             ; TransactionalId: 4 bytes, tx-1",
			"02 67                   ; GroupId: 1 byte, g",
			"0000000000000009        ; ProducerId",
			"7fff                    ; ProducerEpoch",
			"02 6d                   ; MemberId: 1 byte, m",
			"00000001                ; MemberEpoch",
			"02                      ; Topics: 1",
			"  0a000000000000000000000000000001 ; TopicId",
			"  02                    ; Partitions: 1",
			"    00000001            ; PartitionIndex",
			"    03                  ; AcknowledgementBatches: 2",
			"      0000000000000005  ; FirstOffset",
			"      000000000000000e  ; LastOffset",
			"      01                ; AcknowledgeType: accept",
			"      00                ; no tags",
			"      000000000000000f  ; FirstOffset",
			"      000000000000000f  ; LastOffset",
			"      03                ; AcknowledgeType: reject",
			"      00                ; no tags",
			"    00                  ; no tags",
			"  00                    ; no tags",
			"00                      ; no tags",
		},
	}, {
		name: "response draft95",
		message: &Response{
			Profile:        Draft95,
			ThrottleMillis: 100,
			ErrorCode:      0,
			Topics: []ResponseTopic{
				{TopicID: topicA, Partitions: []ResponsePartition{
					{Partition: 0},
					{Partition: 1, ErrorCode: 121, ErrorMessage: ptr("held")},
				}},
				{TopicID: topicB, Partitions: []ResponsePartition{
					{Partition: 2, ErrorCode: -1, ErrorMessage: ptr("")},
				}},
			},
		},
		fields: []string{
			"00000064                ; ThrottleTimeMs",
			"0000                    ; ErrorCode",
			"03                      ; Responses: 2",
			"  0a000000000000000000000000000001 ; TopicId",
			"  03                    ; Partitions: 2",
			"    00000000            ; PartitionIndex",
			"    0000                ; ErrorCode",
			"    00                  ; ErrorMessage: null",
			"    00                  ; no tags",
			"    00000001            ; PartitionIndex",
			"    0079                ; ErrorCode: INVALID_RECORD_STATE",
			"    05 68656c64         ; ErrorMessage: 4 bytes, held",
			"    00                  ; no tags",
			"  00                    ; no tags",
			"  0b000000000000000000000000000002 ; TopicId",
			"  02                    ; Partitions: 1",
			"    00000002            ; PartitionIndex",
			"    ffff                ; ErrorCode: -1",
			"    01                  ; ErrorMessage: empty",
			"    00                  ; no tags",
			"  00                    ; no tags",
			"00                      ; no tags",
		},
	}, {
		name: "response draft95 to a handshake",
		message: &Response{
			Profile:   Draft95,
			ErrorCode: 42,
		},
		fields: []string{
			"00000000                ; ThrottleTimeMs",
			"002a                    ; ErrorCode: INVALID_REQUEST",
			"01                      ; Responses: 0",
			"00                      ; no tags",
		},
	}, {
		name: "response kip93",
		message: &Response{
			Profile: KIP93,
			Topics: []ResponseTopic{
				{TopicID: topicA, Partitions: []ResponsePartition{
					{Partition: 1, ErrorCode: 6, CurrentLeader: &CurrentLeader{LeaderID: 3, LeaderEpoch: 12}},
					{Partition: 2},
				}},
			},
		},
		fields: []string{
			"00000000                ; ThrottleTimeMs",
			"0000                    ; ErrorCode",
			"02                      ; Responses: 1",
			"  0a000000000000000000000000000001 ; TopicId",
			"  03                    ; Partitions: 2",
			"    00000001            ; PartitionIndex",
			"    0006                ; ErrorCode: NOT_LEADER_OR_FOLLOWER",
			"    00                  ; ErrorMessage: null",
			"    01                  ; 1 tag",
			"      00 09             ; tag 0, 9 bytes: CurrentLeader",
			"      00000003          ; LeaderId",
			"      0000000c          ; LeaderEpoch",
			"      00                ; no tags",
			"    00000002            ; PartitionIndex",
			"    0000                ; ErrorCode",
			"    00                  ; ErrorMessage: null",
			"    00                  ; no tags",
			"  00                    ; no tags",
			"00                      ; no tags",
		},
	}}
}

var handshakeFields = []string{
	"00                 ; TransactionalId: null",
	"01                 ; GroupId: empty",
	"ffffffffffffffff   ; ProducerId: none",
	"ffff               ; ProducerEpoch: none",
	"01                 ; MemberId: empty",
	"00000000           ; MemberEpoch",
	"01                 ; Topics: 0",
	"00                 ; no tags",
}

// blank is an empty message of the same kind and profile.
func blank(m message) message {
	switch m := m.(type) {
	case *Request:
		return &Request{Profile: m.Profile, Version: m.Version}
	case *Response:
		return &Response{Profile: m.Profile, Version: m.Version}
	}
	panic(fmt.Sprintf("a %T", m))
}

func TestGolden(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, v := range vectors() {
		t.Run(v.name, func(t *testing.T) {
			want := v.bytes(t)
			for range 2 { // a retry must send the same bytes
				if got := v.message.AppendTo([]byte("x")); !bytes.Equal(got, append([]byte("x"), want...)) {
					t.Fatalf("written\n%x, want\n%x", got[1:], want)
				}
			}
			got := blank(v.message)
			if err := got.ReadFrom(want); err != nil {
				t.Fatal(err)
			}
			if !equal(got, v.message) {
				t.Errorf("read\n%+v, want\n%+v", got, v.message)
			}
		})
	}
}

// equal takes an empty list for a missing one, which the wire does not tell apart.
func equal(a, b message) bool { return reflect.DeepEqual(tidy(a), tidy(b)) }

func tidy(m message) any {
	switch m := m.(type) {
	case *Request:
		c := *m
		c.Topics = orNil(c.Topics)
		for i, t := range c.Topics {
			t.Partitions = orNil(t.Partitions)
			for j, p := range t.Partitions {
				p.Batches = orNil(p.Batches)
				for k, b := range p.Batches {
					p.Batches[k].Types = orNil(b.Types)
				}
				t.Partitions[j] = p
			}
			c.Topics[i] = t
		}
		return c
	case *Response:
		c := *m
		c.Topics = orNil(c.Topics)
		for i, t := range c.Topics {
			t.Partitions = orNil(t.Partitions)
			c.Topics[i] = t
		}
		return c
	}
	panic(fmt.Sprintf("a %T", m))
}

// orNil is a copy, so that tidying leaves the message alone.
func orNil[E any](s []E) []E {
	if len(s) == 0 {
		return nil
	}
	return append([]E(nil), s...)
}

// TestMixedTypesInKIP93: a profile that has one type a batch gets a batch per
// run of equal types, never a wrong type.
func TestMixedTypesInKIP93(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	partition := func(batches ...acks.AcknowledgementBatch) *Request {
		return &Request{Profile: KIP93, Topics: []RequestTopic{{TopicID: topicA, Partitions: []RequestPartition{{Batches: batches}}}}}
	}
	mixed := partition(
		acks.AcknowledgementBatch{FirstOffset: 5, LastOffset: 9, Types: []acks.Type{acks.Accept, acks.Accept, acks.Reject, acks.Accept, acks.Accept}},
		acks.AcknowledgementBatch{FirstOffset: 20, LastOffset: 21, Types: []acks.Type{acks.Reject, acks.Reject}},
		acks.AcknowledgementBatch{FirstOffset: 30, LastOffset: 39, Types: []acks.Type{acks.Reject}},
	)
	want := partition(
		acks.AcknowledgementBatch{FirstOffset: 5, LastOffset: 6, Types: []acks.Type{acks.Accept}},
		acks.AcknowledgementBatch{FirstOffset: 7, LastOffset: 7, Types: []acks.Type{acks.Reject}},
		acks.AcknowledgementBatch{FirstOffset: 8, LastOffset: 9, Types: []acks.Type{acks.Accept}},
		acks.AcknowledgementBatch{FirstOffset: 20, LastOffset: 21, Types: []acks.Type{acks.Reject}},
		acks.AcknowledgementBatch{FirstOffset: 30, LastOffset: 39, Types: []acks.Type{acks.Reject}},
	)
	var got Request
	got.Profile = KIP93
	if err := got.ReadFrom(mixed.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	if !equal(&got, want) {
		t.Errorf("sent %+v, want %+v", got.Topics, want.Topics)
	}
}

// TestKmsg holds what kgo asks of a message: key, version, flexibility, and
// that an answer is read in the profile of its request.
func TestKmsg(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for p, key := range map[Profile]int16{Draft95: 95, KIP93: 93} {
		req := NewHandshake(p)
		resp := req.ResponseKind()
		back := resp.(*Response).RequestKind()
		for _, m := range []message{req, resp, back} {
			if m.Key() != key || m.MaxVersion() != 0 || m.GetVersion() != 0 || !m.IsFlexible() {
				t.Errorf("%v: %T has key %d, versions to %d", p, m, m.Key(), m.MaxVersion())
			}
			m.SetVersion(3)
			if m.GetVersion() != 3 {
				t.Errorf("%v: %T forgets its version", p, m)
			}
		}
		if resp.(*Response).Profile != p || back.(*Request).Profile != p {
			t.Errorf("%v: the profile is lost on the way to the answer", p)
		}
		resp.(kmsg.SetThrottleResponse).SetThrottle(250)
		if ms, after := resp.(kmsg.ThrottleResponse).Throttle(); ms != 250 || !after {
			t.Errorf("%v: throttles %d ms, after the answer: %v", p, ms, after)
		}
	}
}

// TestFrame: kmsg's formatter puts the flexible header before our body.
func TestFrame(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	req := NewHandshake(Draft95)
	got := kmsg.NewRequestFormatter(kmsg.FormatterClientID("c")).AppendRequest(nil, req, 5)
	want := append([]byte{
		0, 0, 0, 31, // size of what follows
		0, 95, // key
		0, 0, // version
		0, 0, 0, 5, // correlation id
		0, 1, 'c', // client id
		0, // no tags
	}, req.AppendTo(nil)...)
	if !bytes.Equal(got, want) {
		t.Errorf("frame\n%x, want\n%x", got, want)
	}
}

func TestProfiles(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		p          Profile
		key, share int16
		text       string
	}{{None, -1, -1, "none"}, {Draft95, 95, 3, "draft95"}, {KIP93, 93, 2, "kip93"}} {
		if c.p.Key() != c.key || c.p.ShareVersion() != c.share || c.p.String() != c.text {
			t.Errorf("%v: key %d, share.version %d; want %+v", c.p, c.p.Key(), c.p.ShareVersion(), c)
		}
	}
}
