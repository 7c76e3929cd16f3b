package simulation

import (
	"context"
	"sync"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
	"github.com/twmb/franz-go/pkg/kgo"
)

// load is what one CommitAcknowledgements carries, and what its process put into the
// store for it: there it counts once the acknowledgements are committed. It is the
// world's, but for what does not change: the store outlives the process.
type load struct {
	number int
	items  []item
	begun  chan struct{} // closed when a transaction of it has begun
	start  func()
	told   sharetxn.Outcome // by the call; Unknown while it has not returned
	txn    *check.Txn       // by a hook; nil if nothing was sent, or nobody told yet
}

// item is one record with what was made of it.
type item struct {
	at   place
	outs []*kgo.Record
}

// place is where a record of the input is.
type place struct {
	partition int32
	offset    int64
}

// load begins one.
func (w *world) load() *load {
	l := &load{begun: make(chan struct{})}
	l.start = sync.OnceFunc(func() { close(l.begun) })
	w.mu.Lock()
	defer w.mu.Unlock()
	l.number = len(w.loads)
	w.loads = append(w.loads, l)
	return l
}

func (l *load) put(partition int32, offset int64, outs []*kgo.Record) {
	l.items = append(l.items, item{place{partition, offset}, outs})
}

// stores is what a record that is acknowledged becomes: of one that is rejected the
// store keeps a dead letter.
func (w *world) stores(value string) []*kgo.Record {
	if isPoison(value) {
		return []*kgo.Record{{Topic: topicDead, Value: []byte(value)}}
	}
	return w.makes(value)
}

func (w *world) tell(l *load, o sharetxn.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.told = o
}

// loadKey is of the load in the context of its call.
type loadKey struct{}

func carrying(ctx context.Context, l *load) context.Context {
	return context.WithValue(ctx, loadKey{}, l)
}

// carried gives the load of a call's context; nil of other forms.
func carried(ctx context.Context) *load {
	l, _ := ctx.Value(loadKey{}).(*load)
	return l
}

// identify notes which transaction a load had. A later call settles what an earlier one
// left unknown: then it is known whose that is.
func (w *world) identify(l *load, k check.Txn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l != nil && !w.identified[k] {
		w.identified[k] = true
		l.txn = &k
	}
}

// decisions are the records that each committed transaction decided, by what the
// brokers saw; also those that profile KIP93 concedes it had lost by then.
func (w *world) decisions() (map[check.Txn]map[place]bool, error) {
	facts, err := w.broker.Facts(context.Background(), group)
	if err != nil {
		return nil, err
	}
	committed := make(map[check.Txn]bool)
	all := make(map[check.Txn]map[place]bool)
	add := func(k check.Txn, r check.Range) {
		if all[k] == nil {
			all[k] = make(map[place]bool)
		}
		for o := r.First; o <= r.Last; o++ {
			all[k][place{r.Partition, o}] = true
		}
	}
	for _, line := range facts.History(check.GuaranteeStaged).Lines {
		switch e := line.Event.(type) {
		case check.Resolved:
			if e.To == check.Acknowledged || e.To == check.Archived {
				add(e.Txn, e.Range)
			}
		case check.Lost:
			add(e.Txn, e.Range)
		case check.Ended:
			committed[e.Txn] = e.Commit
		}
	}
	for k := range all {
		if !committed[k] {
			delete(all, k)
		}
	}
	return all, nil
}

// stored is what the store has, and what each call said of its load: what was told
// committed, and of a load whose outcome nobody was told what the brokers decided.
func (w *world) stored() (got published, said []promise, wrong []string) {
	decided, err := w.decisions()
	if err != nil {
		return nil, nil, []string{"unread: " + err.Error()}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	got = make(published)
	for _, l := range w.loads {
		p := promise{outcome: l.told, produced: len(l.items)}
		for _, i := range l.items {
			is := l.txn != nil && decided[*l.txn][i.at]
			if is {
				p.visible++
			}
			if l.told == sharetxn.Committed || l.told == sharetxn.Unknown && is {
				got.add(i.outs)
			}
		}
		said = append(said, p)
	}
	return got, said, nil
}

// due is what the store will have of what is decided by now, also where no process was
// told yet.
func (w *world) due() (got published, wrong []string) {
	decided, err := w.decisions()
	if err != nil {
		return nil, []string{"unread: " + err.Error()}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	got = make(published)
	for _, records := range decided {
		for _, f := range w.fed {
			if records[place{f.partition, f.offset}] {
				got.add(w.stores(f.value))
			}
		}
	}
	return got, nil
}
