package producer

import (
	"errors"
	"slices"
	"strconv"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/txnmanager"
)

// lane is one of a producer's transactional ids: its transactions, and the kgo
// client that produces in them. Lanes share nothing that a broker knows: a kgo
// client has one producer id and epoch.
type lane struct {
	nth int
	id  string
	m   *txnmanager.TransactionManager
	out *outputs
}

// nthID is the nth transactional id of a producer. The text behind the id is one
// that nobody numbers their services with: of a producer "orders" and one
// "orders-1" neither must take the other's.
func nthID(id string, nth int) string {
	if nth == 0 {
		return id
	}
	return id + "-alt" + strconv.Itoa(nth)
}

// beyond are the ids that an earlier life with more than n may have used.
func beyond(id string, n int) (ids []string) {
	for nth := n; nth < maxIDs; nth++ {
		ids = append(ids, nthID(id, nth))
	}
	return ids
}

func newLane(cl *sharetxn.Cluster, id string, nth int, cfg config) (*lane, error) {
	l := &lane{nth: nth, id: nthID(id, nth)}
	out, refused := newOutputs(core.Of(cl), l.id, cfg)
	l.out = out
	m, err := txnmanager.New(cl, l.id, slices.Concat(cfg.manager, []txnmanager.Opt{txnmanager.WithOutputs(out)})...)
	switch {
	case err != nil:
		return nil, err
	case refused != nil: // by kgo, options in combination
		return nil, errors.Join(usage("New", l.id, "KafkaOptions: %w", refused), m.Close())
	}
	l.m = m
	return l, nil
}
