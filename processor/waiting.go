package processor

import (
	"cmp"
	"slices"
)

// source is a partition that records come from, as consumers pause it.
type source struct {
	topic     string
	partition int32
}

func sourceOf(it *item) source { return source{it.rec.Topic, it.rec.Partition} }

// amount is how much there is of something.
type amount struct{ records, bytes int }

func (a amount) plus(b amount) amount { return amount{a.records + b.records, a.bytes + b.bytes} }

func (a amount) over(most amount) bool { return a.records > most.records || a.bytes > most.bytes }

// share is how much of most there is, of what there is more of.
func (a amount) share(most amount) float64 {
	return max(float64(a.records)/float64(max(1, most.records)), float64(a.bytes)/float64(max(1, most.bytes)))
}

// waiting are records that wait for the ledger. They are not counted among those
// in hand, or many of one partition would keep the others from being polled. That
// they do not become more and more, partitions with many of them are paused.
type waiting struct {
	items  []*item
	of     map[source]amount
	paused map[source]bool
}

func (w *waiting) add(it *item) {
	if w.of == nil {
		w.of = make(map[source]amount)
	}
	s := sourceOf(it)
	w.items = append(w.items, it)
	w.of[s] = w.of[s].plus(amount{1, it.bytes})
}

// take removes all.
func (w *waiting) take() []*item {
	items := w.items
	w.items = nil
	clear(w.of)
	return items
}

func (w *waiting) size() int { return len(w.items) }

func (w *waiting) bytes() (n int) {
	for _, a := range w.of {
		n += a.bytes
	}
	return n
}

// flow says which partitions are to be paused from now on, and which no more. Few
// records that wait do not stop the others of their partition: it is paused once
// there are more than most in partitions that are not, those with the most first,
// and until none of its waits.
func (w *waiting) flow(most amount) (pause, resume []source) {
	for s := range w.paused {
		if _, waits := w.of[s]; !waits {
			resume = append(resume, s)
			delete(w.paused, s)
		}
	}
	var sum amount
	var open []source
	for s, a := range w.of {
		if !w.paused[s] {
			sum = sum.plus(a)
			open = append(open, s)
		}
	}
	if !sum.over(most) {
		return nil, resume
	}
	if w.paused == nil {
		w.paused = make(map[source]bool)
	}
	slices.SortFunc(open, func(a, b source) int {
		return cmp.Or(cmp.Compare(w.of[b].share(most), w.of[a].share(most)), cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	for _, s := range open {
		if !sum.over(most) {
			break
		}
		a := w.of[s]
		sum = sum.plus(amount{-a.records, -a.bytes})
		w.paused[s] = true
		pause = append(pause, s)
	}
	return pause, resume
}

// flow has the consumer fetch from the partitions that it should.
func (m *member) flow() {
	pause, resume := m.hand.waiting.flow(amount{m.cfg.MaxRecords, m.cfg.MaxBytes / 4})
	for _, s := range pause {
		m.log.Warn("sharetxn: many records of a partition wait for the ledger; nothing more of it is fetched until none does", "group", m.cfg.Group, "member", m.n,
			"topic", s.topic, "partition", s.partition, "waiting", m.hand.waiting.of[s].records)
		m.consumer.Pause(s.topic, s.partition)
	}
	for _, s := range resume {
		m.consumer.Resume(s.topic, s.partition)
	}
}
