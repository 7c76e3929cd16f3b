package share

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
)

// logBatch is a record batch's header, all that acquiring needs.
type logBatch struct {
	first, last int64
	from, to    int // its bytes in the chunk
	producerID  int64
	txn         bool
	control     bool
}

const batchHeader = 61

// parseBatches reads the headers of a chunk; a batch cut short ends it.
func parseBatches(src []byte) []logBatch {
	var out []logBatch
	for at := 0; len(src)-at >= batchHeader; {
		b := src[at:]
		size := int(binary.BigEndian.Uint32(b[8:])) + 12
		if size < batchHeader || len(b) < size {
			break
		}
		first := int64(binary.BigEndian.Uint64(b))
		attrs := binary.BigEndian.Uint16(b[21:])
		out = append(out, logBatch{
			first: first, last: first + int64(int32(binary.BigEndian.Uint32(b[23:]))),
			from: at, to: at + size,
			producerID: int64(binary.BigEndian.Uint64(b[43:])),
			txn:        attrs&0x10 != 0, control: attrs&0x20 != 0,
		})
		at += size
	}
	return out
}

// acquireAsk is one acquisition from a piece of log.
type acquireAsk struct {
	owner      string
	deadline   time.Time
	from       int64 // what the chunk was read for; nothing below is taken
	maxRecords int64
	batchSize  int64 // batch_optimized: a new range ends at a batch boundary once it holds so many; 0: never
	exact      bool  // record_limit: not one more than maxRecords
	committed  bool  // read_committed: aborted batches are archived unseen
	chunk      Chunk
	moves      int // leader moves when the leader was looked up
}

// acquired is what the member gets. filtered tells that something was taken that
// it never sees.
type acquired struct {
	ranges   []acquiredRange
	records  []byte
	filtered bool
}

type acquiredRange struct {
	first, last int64
	count       int16
}

// acquire walks the batches from the first available offset on and takes what
// is free until maxRecords is reached; whole batches, unless exact (KIP-932,
// KIP-1206). Holes of the log between two batches belong to the range, so that
// the member acknowledges them as gaps; a hole before the first batch is
// archived, for no record is left there to be delivered.
func (p *partition) acquire(a acquireAsk) acquired {
	cursor, ok := p.next()
	cursor = max(cursor, a.from)
	room, end := p.room(a.maxRecords, cursor)
	if !ok || room <= 0 || cursor > p.end {
		return acquired{}
	}
	batches := parseBatches(a.chunk.Records)
	p.weigh(batches)
	aborted := abortedBatches(a.committed, a.chunk)
	var out acquired
	var taken, inRange int64
	firstByte, lastByte := -1, -1
	walking := false
	for _, b := range batches {
		if b.last < cursor {
			continue
		}
		if taken >= room || cursor >= end {
			break
		}
		if !walking && b.first > cursor {
			last := min(b.first, end) - 1
			p.extend(last)
			p.archive(cursor, last)
			cursor = last + 1
		}
		walking = true
		last := min(b.last, end-1)
		if last < cursor {
			break
		}
		p.extend(last)
		if aborted[b.from] { // counts as if it were handed out (measured)
			if a.exact && p.available(cursor, last) { // else it was passed over before
				last = min(last, cursor+room-taken-1)
			}
			taken += p.archive(cursor, last)
			cursor, out.filtered = last+1, true
			if last < min(b.last, end-1) {
				break // the rest of it is aborted too, and no batch that follows may reach back
			}
			continue
		}
		most := noLimit
		if a.exact {
			most = room - taken
		}
		got, stop := p.take(a, cursor, last, most, b.last-b.first+1, taken > 0)
		for _, r := range got {
			taken += r.last - r.first + 1
			inRange = out.add(r, inRange, a.batchSize)
			if r.last >= b.first {
				if firstByte < 0 {
					firstByte = b.from
				}
				lastByte = b.to
			}
		}
		cursor = last + 1
		if stop {
			break
		}
	}
	if firstByte >= 0 {
		out.records = a.chunk.Records[firstByte:lastByte]
	}
	p.settle()
	return out
}

// available tells whether anything of [first, last] may be taken.
func (p *partition) available(first, last int64) bool {
	return slices.ContainsFunc(p.cover(first, last), func(e entry) bool { return e.state == Available })
}

// noLimit is more than any range holds.
const noLimit = int64(1) << 62

// room is how many offsets may be taken and the offset that ends the walk. The
// lock limit is as soft as Kafka's: the last batch is taken whole. A full
// window still gives away again what it holds.
func (p *partition) room(maxRecords, cursor int64) (offsets, end int64) {
	if left := p.maxLocks - (p.end - p.start); left > 0 {
		return min(maxRecords, left), noLimit
	}
	return min(maxRecords, p.end-cursor), p.end
}

// Reading megabytes to hand out a few records costs more than reading again, so
// what is read for an acquisition follows from what the last read had. Where
// nothing was read yet, firstWeight stands for a record.
const firstWeight = 1 << 10

// readSize is how many bytes to read for so many records, at most maxBytes.
func (p *partition) readSize(records, maxBytes int64) int32 {
	per := p.bytesPerOffset
	if per == 0 {
		per = firstWeight
	}
	want := int64(math.MaxInt32)
	if records < want/per/2 {
		want = records*per + records*per/4 + firstWeight
	}
	return int32(min(want, maxBytes))
}

// weigh remembers how much an offset weighs here.
func (p *partition) weigh(batches []logBatch) {
	if n := len(batches); n > 0 {
		p.bytesPerOffset = max(1, int64(batches[n-1].to)/(batches[n-1].last-batches[0].first+1))
	}
}

// extend makes the window reach to last.
func (p *partition) extend(last int64) {
	if last >= p.end {
		p.entries = append(p.entries, entry{first: p.end, last: last})
		p.end = last + 1
	}
}

// add appends a range, joining it to the one before where nothing tells them
// apart; it gives how many offsets the last range holds now.
func (out *acquired) add(r acquiredRange, inRange, batchSize int64) int64 {
	n := len(out.ranges)
	size := r.last - r.first + 1
	if n > 0 && out.ranges[n-1].last+1 == r.first && out.ranges[n-1].count == r.count && (batchSize <= 0 || inRange < batchSize) {
		out.ranges[n-1].last = r.last
		return inRange + size
	}
	out.ranges = append(out.ranges, r)
	return size
}

// take acquires what is available in [first, last], at most so many offsets.
// Where something there was delivered often, Kafka isolates it: such a batch
// (of size offsets) is handed out by itself and in ever smaller parts, a record
// on its last delivery alone, so that one bad record does not archive its
// neighbours. stop then ends the walk.
func (p *partition) take(a acquireAsk, first, last, most, size int64, others bool) (got []acquiredRange, stop bool) {
	lo, hi := p.split(first), p.split(last+1)
	often := max(2, (p.limit+1)/2)
	throttled := false
	for _, e := range p.entries[lo:hi] {
		throttled = throttled || (e.state == Available && e.count >= often)
	}
	if throttled && others {
		return nil, true
	}
	few := noLimit
	taken := int64(0)
	for i := lo; i < hi && taken < min(most, few); i++ {
		if p.entries[i].state != Available {
			continue
		}
		count := p.entries[i].count
		alone := p.limit > 2 && count >= p.limit-1
		if alone && taken > 0 {
			break
		}
		if few == noLimit && count >= often {
			few = max(1, size>>(count-often+1))
			if few <= taken {
				break
			}
		}
		n := min(p.entries[i].offsets(), min(most, few)-taken)
		if alone {
			n = 1
		}
		if n < p.entries[i].offsets() {
			p.split(p.entries[i].first + n)
			hi++
		}
		e := &p.entries[i]
		e.state, e.owner, e.deadline = Acquired, a.owner, a.deadline
		e.count++
		p.tell(Event{Kind: EventAcquired, To: Acquired}, *e)
		got = append(got, acquiredRange{e.first, e.last, e.count})
		taken += n
		if alone {
			break
		}
	}
	return got, throttled && taken > 0
}

// abortedBatches follows each aborted transaction from its first offset to its
// marker, as a read_committed consumer does, and gives the batches of the chunk
// that belong to one, by where they begin.
func abortedBatches(committed bool, c Chunk) map[int]bool {
	if !committed || len(c.Aborted) == 0 {
		return nil
	}
	out := make(map[int]bool)
	firsts := make(map[int64][]int64) // by producer, of transactions open or still to come
	for _, a := range c.Aborted {
		firsts[a.ProducerID] = append(firsts[a.ProducerID], a.FirstOffset)
	}
	for _, b := range parseBatches(c.Records) {
		open := firsts[b.producerID]
		if !b.txn || len(open) == 0 || b.last < open[0] {
			continue
		}
		if b.control {
			firsts[b.producerID] = open[1:]
			continue
		}
		out[b.from] = true
	}
	return out
}
