package shareconsumer

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var decompressor = kgo.DefaultDecompressor()

// span is a range of acquired offsets with its delivery count.
type span struct {
	first, last int64
	count       int32
}

// sanitise makes acquired ranges ascending and disjoint, whatever a broker
// sends: inverted and negative ones are dropped, overlaps keep the larger
// count.
func sanitise(in []kmsg.ShareFetchResponseTopicPartitionAcquiredRecord) []span {
	var out []span
	for _, a := range in {
		if a.FirstOffset >= 0 && a.FirstOffset <= a.LastOffset && a.LastOffset < math.MaxInt64 {
			out = append(out, span{a.FirstOffset, a.LastOffset, max(1, int32(a.DeliveryCount))})
		}
	}
	return union(out)
}

// union makes spans ascending and disjoint, in their place.
func union(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	merged := spans[:0]
	for _, s := range spans {
		n := len(merged)
		if n == 0 || merged[n-1].last < s.first {
			merged = append(merged, s)
			continue
		}
		merged[n-1].last = max(merged[n-1].last, s.last)
		merged[n-1].count = max(merged[n-1].count, s.count)
	}
	return merged
}

// extent is a range of offsets of which the whole content is known.
type extent struct{ first, last int64 }

// decode reads a partition's record batches one by one, so that one that cannot
// be read does not hide those behind it. The extents tell where an offset
// without a record is proven to have none: inside a batch that was read
// completely, and between two such batches. err is the first trouble met.
func decode(topic string, partition int32, raw []byte) (records []*kgo.Record, known []extent, err error) {
	next := int64(0) // every offset below it was passed
	whole := true    // nothing unreadable since the last known extent
	for len(raw) > 0 {
		frame := frameOf(raw)
		if frame == nil { // where the next one would begin is not known
			return records, known, cmp.Or(err, errTruncated)
		}
		raw = raw[len(frame):]
		rs, covers, ferr := readFrame(topic, partition, frame)
		if ferr == nil && covers.first < next {
			ferr = fmt.Errorf("batch at offset %d lies behind offset %d", covers.first, next)
		}
		if ferr != nil {
			whole, err = false, cmp.Or(err, ferr)
			continue
		}
		if n := len(known); n > 0 && whole {
			known[n-1].last = covers.last
		} else {
			if whole {
				covers.first = next
			}
			known = append(known, covers)
		}
		if records == nil {
			records = make([]*kgo.Record, 0, len(rs)+countOf(raw))
		}
		records = append(records, rs...)
		next, whole = covers.last+1, true
	}
	return records, known, err
}

// Places of a batch's header that all versions share, and those of version 2.
const (
	atLength     = 8
	atMagic      = 16
	atAttributes = 21
	atLastDelta  = 23
	atCount      = 57
	controlBatch = 1 << 5
	newestMagic  = 2
	headerSize   = 61
)

var errTruncated = errors.New("record batch cut short")

// frameOf cuts the first batch off; nil if it is not there completely.
func frameOf(raw []byte) []byte {
	if len(raw) <= atMagic {
		return nil
	}
	size := int64(int32(binary.BigEndian.Uint32(raw[atLength:]))) + atLength + 4
	if size <= atMagic || size > int64(len(raw)) {
		return nil
	}
	return raw[:size:size]
}

// smallestRecord is what a record takes at least, compressed ones less.
const smallestRecord = 7

// countOf is how many records the batches say that they have, as far as it can be
// believed: room for them is made at once.
func countOf(raw []byte) (n int) {
	most := len(raw) / smallestRecord
	for frame := frameOf(raw); frame != nil && n < most; frame = frameOf(raw) {
		if len(frame) >= headerSize {
			n += max(0, int(int32(binary.BigEndian.Uint32(frame[atCount:]))))
		}
		raw = raw[len(frame):]
	}
	return min(n, most)
}

// readFrame reads one batch completely or not at all, and tells which offsets
// it covers, also where compaction took their records.
func readFrame(topic string, partition int32, frame []byte) ([]*kgo.Record, extent, error) {
	// kgo passes over what it does not know without a word.
	if magic := frame[atMagic]; magic > newestMagic || (magic == newestMagic && len(frame) < headerSize) {
		return nil, extent{}, fmt.Errorf("%w: magic %d, %d bytes", errTruncated, magic, len(frame))
	}
	part := kmsg.NewFetchResponseTopicPartition()
	part.Partition, part.RecordBatches = partition, frame
	part.HighWatermark, part.LastStableOffset, part.LogStartOffset = -1, -1, -1
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: topic, Partition: partition}, &part, decompressor, nil)
	if fp.Err != nil {
		return nil, extent{}, fp.Err
	}
	base := int64(binary.BigEndian.Uint64(frame))
	covers := extent{base, base}
	if frame[atMagic] >= 2 { // kgo has read the whole header
		covers.last += int64(int32(binary.BigEndian.Uint32(frame[atLastDelta:])))
		control := binary.BigEndian.Uint16(frame[atAttributes:])&controlBatch != 0
		if n := int32(binary.BigEndian.Uint32(frame[atCount:])); !control && int(n) != len(fp.Records) {
			return nil, extent{}, fmt.Errorf("batch at offset %d has %d of %d records", base, len(fp.Records), n)
		}
	} else if len(fp.Records) > 0 { // a set of messages is known by its last offset
		covers.first = fp.Records[0].Offset
	}
	if covers.first < 0 || covers.last < covers.first || covers.last == math.MaxInt64 {
		return nil, extent{}, fmt.Errorf("batch covers offsets %d to %d", covers.first, covers.last)
	}
	at := covers.first
	for _, r := range fp.Records {
		if r.Offset < at || r.Offset > covers.last {
			return nil, extent{}, fmt.Errorf("batch of offsets %d to %d has a record at %d", covers.first, covers.last, r.Offset)
		}
		at = r.Offset + 1
	}
	return fp.Records, covers, nil
}

// sift walks records and acquired ranges together: it gives the records of each
// range, which may be none; records outside every range are not ours; offsets
// inside one without a record are holes. Both ascend; what is given shares the
// memory of records.
func sift(records []*kgo.Record, spans []span) (ours [][]*kgo.Record, holes []extent) {
	i := 0
	ours = make([][]*kgo.Record, 0, len(spans))
	for _, s := range spans {
		for i < len(records) && records[i].Offset < s.first {
			i++
		}
		next, from := s.first, i
		for ; i < len(records) && records[i].Offset <= s.last; i++ {
			o := records[i].Offset
			if o > next {
				holes = append(holes, extent{next, o - 1})
			}
			next = o + 1
		}
		ours = append(ours, records[from:i:i])
		if next <= s.last {
			holes = append(holes, extent{next, s.last})
		}
	}
	return ours, holes
}

// fill decides about holes: a gap where it is proven that the log has no record
// (markers, compaction), or it would stay acquired and come back; a release
// where there may be one, since nobody has decided it. Both lists ascend.
func fill(holes, known []extent) (runs []acks.Run, unread []extent) {
	for _, h := range holes {
		at := h.first
		for _, k := range known {
			if k.last < at || k.first > h.last {
				continue
			}
			if k.first > at {
				unread = append(unread, extent{at, k.first - 1})
				at = k.first
			}
			end := min(k.last, h.last)
			runs = append(runs, acks.Run{First: at, Last: end, Type: acks.Gap})
			at = end + 1
		}
		if at <= h.last {
			unread = append(unread, extent{at, h.last})
		}
	}
	for _, u := range unread {
		runs = append(runs, acks.Run{First: u.first, Last: u.last, Type: acks.Release})
	}
	return runs, unread
}
