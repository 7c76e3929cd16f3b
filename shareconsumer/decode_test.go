package shareconsumer

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// batchAt is a record batch that covers first to last and has records at
// offsets.
func batchAt(first, last int64, offsets ...int64) []byte {
	return encode(kmsg.RecordBatch{FirstOffset: first, LastOffsetDelta: int32(last - first), NumRecords: int32(len(offsets)), Records: recordsAt(first, offsets...)})
}

func recordsAt(first int64, offsets ...int64) (raw []byte) {
	for _, o := range offsets {
		r := kmsg.Record{OffsetDelta: int32(o - first), Value: []byte("v")}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // its own varint takes a byte
		raw = r.AppendTo(raw)
	}
	return raw
}

func encode(b kmsg.RecordBatch) []byte {
	b.Magic = 2
	raw := b.AppendTo(nil)
	b.Length = int32(len(raw) - 12)
	b.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b.AppendTo(nil)
}

func marker(at int64) []byte {
	return encode(kmsg.RecordBatch{FirstOffset: at, NumRecords: 1, Attributes: controlBatch, Records: recordsAt(at, at)})
}

// damaged flips a bit of the last byte.
func damaged(b []byte) []byte {
	b = slices.Clone(b)
	b[len(b)-1] ^= 1
	return b
}

func TestDecode(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for name, c := range map[string]struct {
		raw     [][]byte
		offsets []int64
		known   []extent
		fails   bool
	}{
		"nothing":            {},
		"two batches":        {[][]byte{batchAt(3, 4, 3, 4), batchAt(5, 5, 5)}, []int64{3, 4, 5}, []extent{{0, 5}}, false},
		"compacted inside":   {[][]byte{batchAt(0, 9, 2, 7)}, []int64{2, 7}, []extent{{0, 9}}, false},
		"compacted between":  {[][]byte{batchAt(0, 1, 0, 1), batchAt(8, 8, 8)}, []int64{0, 1, 8}, []extent{{0, 8}}, false},
		"compacted all":      {[][]byte{batchAt(4, 6)}, nil, []extent{{0, 6}}, false},
		"marker":             {[][]byte{batchAt(0, 0, 0), marker(1)}, []int64{0}, []extent{{0, 1}}, false},
		"damaged first":      {[][]byte{damaged(batchAt(0, 1, 0, 1)), batchAt(2, 2, 2), batchAt(3, 3, 3)}, []int64{2, 3}, []extent{{2, 3}}, true},
		"damaged between":    {[][]byte{batchAt(0, 0, 0), damaged(batchAt(1, 2, 1, 2)), batchAt(5, 5, 5)}, []int64{0, 5}, []extent{{0, 0}, {5, 5}}, true},
		"damaged last":       {[][]byte{batchAt(0, 0, 0), damaged(batchAt(1, 2, 1, 2))}, []int64{0}, []extent{{0, 0}}, true},
		"cut short":          {[][]byte{batchAt(0, 0, 0), batchAt(1, 2, 1, 2)[:40]}, []int64{0}, []extent{{0, 0}}, true},
		"cut in the length":  {[][]byte{batchAt(0, 0, 0), batchAt(1, 2, 1, 2)[:10]}, []int64{0}, []extent{{0, 0}}, true},
		"fewer than claimed": {[][]byte{encode(kmsg.RecordBatch{LastOffsetDelta: 1, NumRecords: 2, Records: recordsAt(0, 0)}), batchAt(2, 2, 2)}, []int64{2}, []extent{{2, 2}}, true},
		"cannot inflate":     {[][]byte{batchAt(0, 0, 0), encode(kmsg.RecordBatch{FirstOffset: 1, Attributes: 1, NumRecords: 1, Records: recordsAt(1, 1)})}, []int64{0}, []extent{{0, 0}}, true},
		"backwards":          {[][]byte{batchAt(5, 6, 5, 6), batchAt(3, 4, 3, 4)}, []int64{5, 6}, []extent{{0, 6}}, true},
		"negative":           {[][]byte{batchAt(-5, -4, -5, -4)}, nil, nil, true},
		"inverted":           {[][]byte{batchAt(5, 3)}, nil, nil, true},
		"record outside":     {[][]byte{batchAt(5, 6, 7)}, nil, nil, true},
		"records unordered":  {[][]byte{batchAt(5, 7, 6, 5)}, nil, nil, true},
		"noise":              {[][]byte{slices.Repeat([]byte{0xff}, 100)}, nil, nil, true},
	} {
		records, known, err := decode("in", 0, slices.Concat(c.raw...))
		var offsets []int64
		for _, r := range records {
			offsets = append(offsets, r.Offset)
		}
		if !slices.Equal(offsets, c.offsets) || !slices.Equal(known, c.known) || (err != nil) != c.fails {
			t.Errorf("%s: offsets %v, known %v, %v; want %v, %v, error %v", name, offsets, known, err, c.offsets, c.known, c.fails)
		}
	}
}

// An old message set still reads: Kafka keeps what was written long ago.
func TestDecodeMessageSet(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	message := func(offset int64) []byte {
		m := kmsg.MessageV1{Offset: offset, Magic: 1, Value: []byte("v")}
		raw := m.AppendTo(nil)
		m.MessageSize = int32(len(raw) - 12)
		m.CRC = int32(crc32.ChecksumIEEE(raw[16:]))
		return m.AppendTo(nil)
	}
	records, known, err := decode("in", 0, slices.Concat(message(4), message(6)))
	if err != nil || len(records) != 2 || !slices.Equal(known, []extent{{0, 6}}) {
		t.Fatalf("%d records, known %v, %v", len(records), known, err)
	}
}

// Room is made for what batches say they have, and never for more than fits in.
func TestCountOf(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	two, three := batchAt(0, 1, 0, 1), batchAt(2, 4, 2, 3, 4)
	lying := slices.Clone(two)
	binary.BigEndian.PutUint32(lying[atCount:], math.MaxInt32)
	negative := slices.Clone(two)
	binary.BigEndian.PutUint32(negative[atCount:], math.MaxUint32)
	for name, c := range map[string]struct {
		raw  []byte
		want int
	}{
		"nothing":        {nil, 0},
		"two batches":    {slices.Concat(two, three), 5},
		"cut short":      {slices.Concat(two, three[:len(three)-1]), 2},
		"more than fit":  {lying, len(lying) / smallestRecord},
		"less than none": {slices.Concat(negative, three), 3},
	} {
		if got := countOf(c.raw); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestFill(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	gap := func(first, last int64) acks.Run { return acks.Run{First: first, Last: last, Type: acks.Gap} }
	back := func(first, last int64) acks.Run { return acks.Run{First: first, Last: last, Type: acks.Release} }
	for name, c := range map[string]struct {
		holes, known []extent
		want         []acks.Run
	}{
		"known":             {[]extent{{1, 2}}, []extent{{0, 9}}, []acks.Run{gap(1, 2)}},
		"unknown":           {[]extent{{1, 2}}, nil, []acks.Run{back(1, 2)}},
		"behind the end":    {[]extent{{8, 12}}, []extent{{0, 9}}, []acks.Run{gap(8, 9), back(10, 12)}},
		"before the begin":  {[]extent{{1, 5}}, []extent{{4, 9}}, []acks.Run{gap(4, 5), back(1, 3)}},
		"over an island":    {[]extent{{1, 9}}, []extent{{3, 4}, {6, 6}}, []acks.Run{gap(3, 4), gap(6, 6), back(1, 2), back(5, 5), back(7, 9)}},
		"several":           {[]extent{{1, 1}, {5, 5}}, []extent{{0, 3}}, []acks.Run{gap(1, 1), back(5, 5)}},
		"no hole":           {nil, []extent{{0, 3}}, nil},
		"huge, not counted": {[]extent{{0, 1 << 62}}, nil, []acks.Run{back(0, 1<<62)}},
	} {
		if got, _ := fill(c.holes, c.known); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestUnreadErrorIsBounded(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	re := recordsErrorIn(t, unreadError("g", "in", 1, []extent{{5, 6}, {10, 1 << 62}}, errMissing))
	if len(re.Offsets) != maxNamed || re.Offsets[1] != 6 || re.Offsets[2] != 10 || re.More < 1<<30 {
		t.Fatalf("%+v", re)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(slices.Concat(batchAt(3, 4, 3, 4), marker(5), batchAt(6, 9, 7)))
	f.Add(damaged(batchAt(0, 1, 0, 1)))
	f.Add(batchAt(0, 1, 0, 1)[:30])
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) >= 61 { // or hardly anything would pass the checksum
			size := min(int(binary.BigEndian.Uint32(raw[8:]))+12, len(raw))
			if size > 21 {
				binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:size], crc32.MakeTable(crc32.Castagnoli)))
			}
		}
		records, known, err := decode("in", 0, raw)
		at := int64(-1)
		for _, k := range known {
			if k.first <= at || k.last < k.first {
				t.Fatalf("extents %v", known)
			}
			at = k.last
		}
		at = -1
		for _, r := range records {
			if r.Offset <= at || !slices.ContainsFunc(known, func(k extent) bool { return k.first <= r.Offset && r.Offset <= k.last }) {
				t.Fatalf("offset %d after %d, known %v", r.Offset, at, known)
			}
			at = r.Offset
		}
		if len(raw) > 0 && len(known) == 0 && err == nil {
			t.Fatal("nothing read and no error")
		}
	})
}
