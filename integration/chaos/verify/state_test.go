package verify

import (
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// Records that Kafka 4.4.0 wrote of groups less1 and kept4.
const (
	less1 = "00056c657373314158ce675f1a419c901963fb2ebd65ec00000000"
	kept4 = "00056b6570743451fff9998a3c407887cfd5e8b72c32c700000000"

	made    = "0000000000000000000200000000ffffffffffffffff000001a22dc1dd6b000001a22dc1dd6b0100"
	first   = "00000000000000000000000000000000000002000000000000007400000000000000a5020001000100040000006c"
	several = "00000000000000000000000000000000000005000000000000003200000000000000390000020000000000000002b800000000000002b80200010000000000000002cd00000000000002f10200010000000000000002f300000000000002fe02000100010004000002c4"
	given   = "00000000000000000000000000000000003202000000000000003200000000000000320400090001000400000489"
	setBack = "00000000000100000006000000000000000000000000000001a22dc250d8000001a22dc250d80101000400000000"
	again   = "0000000000010000000000000000000006b40300000000000006b400000000000006b40200010000000000000006df00000000000007070200010001000400000054"
)

var (
	topicOfLess1 = [16]byte{0x41, 0x58, 0xce, 0x67, 0x5f, 0x1a, 0x41, 0x9c, 0x90, 0x19, 0x63, 0xfb, 0x2e, 0xbd, 0x65, 0xec}
	topicOfKept4 = [16]byte{0x51, 0xff, 0xf9, 0x99, 0x8a, 0x3c, 0x40, 0x78, 0x87, 0xcf, 0xd5, 0xe8, 0xb7, 0x2c, 0x32, 0xc7}
)

func bytesOf(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseState(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		name, key, value string
		want             StateRecord
	}{
		{"made", "0000" + less1, made, StateRecord{Snapshot: true, Epoch: 2, Start: -1}},
		{"one batch", "0001" + less1, first, StateRecord{Start: 0, Batches: []StateBatch{{116, 165, Acknowledged, 1}}}},
		{"several", "0001" + less1, several, StateRecord{Start: 0, Batches: []StateBatch{
			{50, 57, Available, 2}, {696, 696, Acknowledged, 1}, {717, 753, Acknowledged, 1}, {755, 766, Acknowledged, 1},
		}}},
		{"archived", "0001" + less1, given, StateRecord{Start: 50, Batches: []StateBatch{{50, 50, Archived, 9}}}},
		{"set back", "0000" + kept4, setBack, StateRecord{Group: "kept4", Topic: topicOfKept4, Snapshot: true, Epoch: 6, Start: 0}},
		{"above a start", "0001" + kept4, again, StateRecord{Group: "kept4", Topic: topicOfKept4, Start: 1716, Batches: []StateBatch{
			{1716, 1716, Acknowledged, 1}, {1759, 1799, Acknowledged, 1},
		}}},
	} {
		if c.want.Group == "" {
			c.want.Group, c.want.Topic = "less1", topicOfLess1
		}
		key, value := bytesOf(t, c.key), bytesOf(t, c.value)
		got, err := ParseState(key, value)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
		}
		for n := range key {
			if _, err := ParseState(key[:n], value); !errors.Is(err, errState) {
				t.Errorf("%s: %d bytes of its key: %v", c.name, n, err)
			}
		}
		for n := range value {
			if _, err := ParseState(key, value[:n]); !errors.Is(err, errState) {
				t.Errorf("%s: %d bytes of its value: %v", c.name, n, err)
			}
		}
		if _, err := ParseState(key, append(value, 0)); !errors.Is(err, errState) {
			t.Errorf("%s: a byte too many: %v", c.name, err)
		}
	}
	gone, err := ParseState(bytesOf(t, "0000"+less1), nil)
	if want := (StateRecord{Group: "less1", Topic: topicOfLess1, Snapshot: true, Deleted: true}); err != nil || !reflect.DeepEqual(gone, want) {
		t.Errorf("%+v, %v, want %+v", gone, err, want)
	}
	for name, bad := range map[string][2]string{
		"another key":     {"0002" + less1, made},
		"a newer version": {"0000" + less1, "0001" + made[4:]},
		"turned round":    {"0001" + less1, "000000000000000000000000000000000000020000000000000074000000000000007302000100010004000000" + "6c"},
	} {
		if r, err := ParseState(bytesOf(t, bad[0]), bytesOf(t, bad[1])); !errors.Is(err, errState) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// What counts of an offset is what was written last, in each round.
func TestStates(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	s := NewStates("g")
	topic, other := [16]byte{1}, [16]byte{2}
	change := func(batches ...StateBatch) StateRecord {
		return StateRecord{Group: "g", Topic: topic, Partition: 3, Start: -1, Batches: batches}
	}
	snapshot := func(epoch int32, batches ...StateBatch) StateRecord {
		r := change(batches...)
		r.Snapshot, r.Epoch = true, epoch
		return r
	}
	if err := s.Record(change(StateBatch{0, 1, Acknowledged, 1})); !errors.Is(err, errState) {
		t.Errorf("changed before it was: %v", err)
	}
	ofOthers := change(StateBatch{0, 9, Archived, 10})
	ofOthers.Group = "h"
	deleted := snapshot(0)
	deleted.Deleted = true
	for _, r := range []StateRecord{
		snapshot(0),
		change(StateBatch{0, 4, Available, 1}, StateBatch{6, 7, Acknowledged, 1}),
		ofOthers,
		snapshot(0, StateBatch{2, 4, Available, 2}, StateBatch{6, 7, Acknowledged, 1}),
		change(StateBatch{2, 3, Acknowledged, 3}),
		change(StateBatch{4, 4, Archived, 10}),
		deleted,
		snapshot(4), // set, and set once more before anything was done
		snapshot(6),
		change(StateBatch{4, 5, Acknowledged, 2}),
	} {
		if err := s.Record(r); err != nil {
			t.Fatal(err)
		}
	}
	type last struct {
		state Delivery
		count int
	}
	for round, want := range [][]last{
		{},
		{{Available, 1}, {Available, 1}, {Acknowledged, 3}, {Acknowledged, 3}, {Archived, 10}, {Unknown, 0}, {Acknowledged, 1}, {Acknowledged, 1}, {Unknown, 0}},
		{{Unknown, 0}, {Unknown, 0}, {Unknown, 0}, {Unknown, 0}, {Acknowledged, 2}, {Acknowledged, 2}, {Unknown, 0}},
		{{Unknown, 0}},
	} {
		for o, w := range want {
			if state, count := s.Of(round, topic, 3, int64(o)); state != w.state || count != w.count {
				t.Errorf("round %d offset %d: %v, %d deliveries, want %v, %d", round, o, state, count, w.state, w.count)
			}
		}
	}
	if n := s.Rounds(topic, 3); n != 2 {
		t.Errorf("%d rounds, want 2", n)
	}
	if n := s.Rounds(topic, 2) + s.Rounds(other, 3); n != 0 {
		t.Errorf("%d rounds of what was not written of", n)
	}
	if state, _ := s.Of(1, other, 3, 0); state != Unknown {
		t.Errorf("another topic's: %v", state)
	}
}
