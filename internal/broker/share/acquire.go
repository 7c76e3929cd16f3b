package share

import (
	"encoding/binary"
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

// acquireAsk is one acquisition.
type acquireAsk struct {
	owner      string
	deadline   time.Time
	maxRecords int64
	batchSize  int64 // ranges end at a batch boundary once they hold so many; 0: never
	exact      bool  // record_limit: not one more than maxRecords
	committed  bool  // read_committed: aborted batches are archived unseen
	chunk      Chunk
}

// acquired is what the member gets.
type acquired struct {
	ranges  []acquiredRange
	records []byte
}

type acquiredRange struct {
	first, last int64
	count       int16
}

// acquire walks the batches from the next offset on and takes what is free
// until maxRecords is reached: earlier deliveries first, since the chunk begins
// at the first available offset (KIP-932; KIP-1206 for exact).
func (p *partition) acquire(a acquireAsk) acquired {
	from, ok := p.next()
	if !ok || a.maxRecords <= 0 {
		return acquired{}
	}
	aborted := abortedRanges(a.committed, a.chunk)
	var out acquired
	var taken, inRange int64
	firstByte, lastByte := -1, -1
	cursor := from
	for _, b := range parseBatches(a.chunk.Records) {
		if b.last < cursor {
			continue
		}
		if taken >= a.maxRecords {
			break
		}
		first, last := cursor, b.last // a hole before the batch is part of the range
		room := a.maxRecords - taken
		if a.exact && last-max(first, b.first)+1 > room {
			last = max(first, b.first) + room - 1
		}
		if last >= p.end {
			grown := p.maxLocks - (p.end - p.start)
			last = min(last, p.end+max(grown, 0)-1)
			if last < first {
				break
			}
			if last >= p.end {
				p.entries = append(p.entries, entry{first: p.end, last: last})
				p.end = last + 1
			}
		}
		if aborted.has(b) {
			p.archive(first, last)
			cursor = last + 1
			continue
		}
		got, stop := p.take(a, first, last, taken == 0)
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

// take acquires what is available in [first, last]. A record that was delivered
// too often is taken with few others, and on its last delivery alone, so that
// one bad record does not archive its neighbours; stop then ends the walk.
func (p *partition) take(a acquireAsk, first, last int64, alone bool) (got []acquiredRange, stop bool) {
	lo, hi := p.split(first), p.split(last+1)
	for i := lo; i < hi; i++ {
		if p.entries[i].state != Available {
			continue
		}
		if most := p.throttle(p.entries[i].count); most < p.entries[i].offsets() || most == 1 {
			if !alone || len(got) > 0 {
				return got, true
			}
			p.split(p.entries[i].first + most)
			stop = true
		}
		e := &p.entries[i]
		e.state, e.owner, e.deadline = Acquired, a.owner, a.deadline
		e.count++
		got = append(got, acquiredRange{e.first, e.last, e.count})
		if stop {
			return got, true
		}
	}
	return got, false
}

// noThrottle is more than any range holds.
const noThrottle = int64(1) << 62

// throttle is how many offsets that were delivered count times may be handed
// out together.
func (p *partition) throttle(count int16) int64 {
	from := max(2, (p.limit+1)/2)
	switch {
	case count+1 >= p.limit && p.limit > 1:
		return 1
	case count >= from:
		return 16 >> (count - from)
	}
	return noThrottle
}

// archive ends what is available in [first, last] without a delivery.
func (p *partition) archive(first, last int64) {
	lo, hi := p.split(first), p.split(last+1)
	for i := lo; i < hi; i++ {
		if p.entries[i].state == Available {
			p.entries[i].state = Archived
		}
	}
}

// abortedIndex tells which batches of a chunk belong to aborted transactions.
type abortedIndex struct{ batches map[int]bool }

func (x abortedIndex) has(b logBatch) bool { return x.batches[b.from] }

// abortedRanges follows each aborted transaction from its first offset to its
// marker, as a read_committed consumer does.
func abortedRanges(committed bool, c Chunk) abortedIndex {
	x := abortedIndex{}
	if !committed || len(c.Aborted) == 0 {
		return x
	}
	x.batches = make(map[int]bool)
	open := make(map[int64][]int64) // producer -> first offsets still to come or open
	for _, a := range c.Aborted {
		open[a.ProducerID] = append(open[a.ProducerID], a.FirstOffset)
	}
	for _, b := range parseBatches(c.Records) {
		firsts := open[b.producerID]
		if !b.txn || len(firsts) == 0 || b.last < firsts[0] {
			continue
		}
		if b.control {
			open[b.producerID] = firsts[1:]
			continue
		}
		x.batches[b.from] = true
	}
	return x
}
