package shareconsumer

import (
	"cmp"
	"slices"
	"sort"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/bind"
)

// partKey is a partition's identity.
type partKey struct {
	topic [16]byte
	part  int32
}

func keyOf(tp acks.TopicIDPartition) partKey { return partKey{tp.TopicID, tp.Partition} }

// Claim implements bind.Owner: the KIP's form names offsets, which are looked
// up among the records that this member holds open.
func (c *Consumer) Claim(batches map[acks.TopicIDPartition][]acks.AcknowledgementBatch) (bind.Handle, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, closedError("SendShareAcknowledgementsToTransaction", c.group)
	}
	if c.cfg.mode != Transactional {
		return nil, &sharetxn.Error{Op: "SendShareAcknowledgementsToTransaction", Class: sharetxn.ClassUsage, Group: c.group, Err: sharetxn.ErrMode}
	}
	type claim struct {
		r *Record
		t acks.Type
	}
	var claims []claim
	seen := make(map[partKey]bool)
	for tp, bs := range batches {
		if seen[keyOf(tp)] {
			return nil, usage("SendShareAcknowledgementsToTransaction", "batches: partition %v is there under two names", tp)
		}
		seen[keyOf(tp)] = true
		if err := acks.ValidateTransactional(tp, bs); err != nil {
			return nil, err
		}
		mine := 0 // records
		for _, l := range c.held[keyOf(tp)] {
			mine += l.live
		}
		stale := &sharetxn.RecordsError{Topic: tp.Topic, Partition: tp.Partition, Err: sharetxn.ErrStale}
		for _, b := range bs {
			if n := b.Offsets(); n > int64(mine) {
				// more offsets than records held: name the first that is missing
				// without walking a range that may be huge
				for o := b.FirstOffset; ; o++ {
					if r := c.record(keyOf(tp), o); r == nil || !r.claimable() {
						stale.Offsets, stale.More = []int64{o}, int(min(n-1, 1<<30))
						break
					}
				}
				continue
			}
			for run := range b.Runs() {
				for o := run.First; o <= run.Last; o++ {
					r := c.record(keyOf(tp), o)
					switch {
					case r != nil && r.claimable():
						claims = append(claims, claim{r, run.Type})
					case len(stale.Offsets) < maxNamed:
						stale.Offsets = append(stale.Offsets, o)
					default:
						stale.More++
					}
				}
			}
		}
		if len(stale.Offsets) > 0 {
			return nil, &sharetxn.Error{Op: "SendShareAcknowledgementsToTransaction", Class: sharetxn.ClassAbortable, Group: c.group, Err: stale}
		}
	}
	out := &Batch{c: c, state: held, taken: true, homes: make(map[*Record]*Batch)}
	from := make(map[*Batch][]*Record)
	for _, cl := range claims {
		from[cl.r.batch] = append(from[cl.r.batch], cl.r)
		cl.r.verdict = cl.t
	}
	for b, rs := range from {
		part := b.split(rs)
		delete(c.batches, part)
		for _, r := range part.records {
			r.batch, out.homes[r] = out, b
		}
		out.records = append(out.records, part.records...)
	}
	c.batches[out] = struct{}{}
	c.wakeRenewer()
	return handle{out}, nil
}

// unclaim gives the records of an aborted claim back to the batches they came
// from; where such a batch is over, nobody could decide them any more, so they
// are released. c.mu is held.
func (b *Batch) unclaim() {
	var over []*Record
	for _, r := range b.records {
		if home := b.homes[r]; home.state == open && !home.closed {
			home.records, r.batch = append(home.records, r), home
			slices.SortFunc(home.records, inOrder)
			continue
		}
		over = append(over, r)
	}
	b.records = over
	b.release()
}

// record finds a record that was polled and is still held; c.mu is held.
func (c *Consumer) record(k partKey, offset int64) *Record {
	i := c.held.from(k, offset)
	if i == len(c.held[k]) {
		return nil
	}
	rs := c.held[k][i].records
	n := sort.Search(len(rs), func(n int) bool { return rs[n].Offset >= offset })
	if n == len(rs) || rs[n].Offset != offset {
		return nil
	}
	return &rs[n]
}

// claimable: held by this member, not lost, and in no transaction; c.mu is
// held.
func (r *Record) claimable() bool {
	return !r.gone && r.lease.lost == nil && r.batch.state == open && !r.batch.closed
}

// inOrder is the order of a batch's records.
func inOrder(x, y *Record) int {
	return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition), cmp.Compare(x.Offset, y.Offset))
}
