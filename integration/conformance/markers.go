package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// markers is what the commit ledger decides transactions by: whoever ends one of
// epoch e, its marker has the epoch e+1 and stands behind all of its records. The
// case of the last epoch is among transactions: it takes long.
var markers = []Case{
	{Name: "markers/of its own end", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 2)
		id := p.ID
		for i, commit := range []bool{true, false, false, true} {
			x.Same("epoch", p.Epoch, int16(i))
			x.Same("produce", []int16{p.produce(ctx, 0, "a"), p.produce(ctx, 1, "b")}, []int16{0, 0})
			x.Same("end", p.end(ctx, commit), int16(0))
		}
		p.becomes(ctx, "CompleteCommit")
		want := []byhand.Marker{{ProducerID: id, Epoch: 1, Commit: true}, {ProducerID: id, Epoch: 2}, {ProducerID: id, Epoch: 3}, {ProducerID: id, Epoch: 4, Commit: true}}
		x.Same("markers", p.marked(ctx, 0), want)
		x.Same("markers of the other partition", p.marked(ctx, 1), want)
	}},
	{Name: "markers/of a timeout", Limit: longLimit, Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1).again()
		p.Timeout = time.Second
		x.Same("init", p.init(ctx), int16(0))
		id, epoch := p.ID, p.Epoch
		x.Same("produce", p.produce(ctx, 0, "late"), int16(0))
		p.becomes(ctx, "CompleteAbort")
		next := p.at(id, epoch+1)
		next.ends(ctx, true)
		x.Same("markers", p.marked(ctx, 0), []byhand.Marker{{ProducerID: id, Epoch: epoch + 1}, {ProducerID: id, Epoch: epoch + 2, Commit: true}})
	}},
	{Name: "markers/of an init that fences", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		x.Same("produce", p.produce(ctx, 0, "zombie"), int16(0))
		next := p.again()
		x.Same("init", next.init(ctx), int16(0))
		next.ends(ctx, true)
		x.Same("markers", p.marked(ctx, 0), []byhand.Marker{{ProducerID: p.ID, Epoch: 1}, {ProducerID: p.ID, Epoch: 3, Commit: true}})
	}},
	{Name: "markers/of an init that claims its own identity", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		id := p.ID
		x.Same("produce", p.produce(ctx, 0, "given up"), int16(0))
		x.Same("init", p.init(ctx), int16(0))
		x.Same("id", p.ID, id)
		epoch := p.Epoch
		p.ends(ctx, true)
		x.Same("markers", p.marked(ctx, 0), []byhand.Marker{{ProducerID: id, Epoch: 1}, {ProducerID: id, Epoch: epoch + 1, Commit: true}})
	}},
	// A coordinator that lost an answer writes a marker again, and the request may
	// come late, into the transaction that follows: the marker is not its own.
	{Name: "markers/written again", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		id := p.ID
		p.ends(ctx, true)
		first := byhand.Marker{ProducerID: id, Epoch: 1, Commit: true}
		x.Same("again, nothing is open", p.writeMarker(ctx, first, 2), int16(0))
		x.Same("markers", p.marked(ctx, 0), []byhand.Marker{first, first})
		x.Same("produce", p.produce(ctx, 0, "next"), int16(0))
		x.Differs("again, the next one is open", leavesMarkers, p.writeMarker(ctx, first, 2), int16(codeInvalidProducerEpoch), int16(0))
		x.Same("again, by a coordinator or a tool of the time before", p.writeMarker(ctx, first, 0), int16(0))
		x.Differs("markers", leavesMarkers, len(p.marked(ctx, 0)), 3, 4)
	}},
}

// While a partition has no leader a coordinator of Kafka 4.3 and 4.4 drops its marker and
// completes the transaction. What was written there stays open at its epoch, and the next marker
// of the producer id, whosever transaction it ends, decides it: so it can be
// repaired by a transaction that writes nothing, and hidden or shown by another.
var lostMarkers = []Case{
	{Name: "markers/lost for want of a leader", Brokers: 3, Alone: true, Limit: 4 * time.Minute, Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 2)
		type end struct {
			name         string
			first, later bool   // commit
			writes       string // in the later transaction
			want         []string
		}
		ends := []end{
			{"commit, repaired", true, true, "", []string{"commit, repaired"}},
			{"commit, hidden", true, false, "aborted", nil},
			{"abort, repaired", false, false, "", nil},
			{"abort, shown", false, true, "committed", []string{"abort, shown", "committed"}},
		}
		away := x.Target.Nodes()[0]
		x.moveLeaderTo(ctx, t, away)
		var producers []*txn
		for len(producers) < len(ends) { // who is away coordinates none of them
			if p := x.TxnTo(ctx, t); x.txnCoordinator(ctx, p.TxnID) != away {
				producers = append(producers, p)
			}
		}
		for i, p := range producers {
			x.Same("produce", []int16{p.produce(ctx, 0, ends[i].name), p.produce(ctx, 1, "neighbour")}, []int16{0, 0})
		}
		back := x.Target.Leaderless(ctx, x, t, 0)
		for i, p := range producers {
			testkit.Eventually(ctx, x, "the transaction is ended", func() bool {
				code, err := p.End(ctx, ends[i].first)
				return err == nil && code == 0
			})
		}
		complete := func() {
			for _, p := range producers {
				testkit.Eventually(ctx, x, "and complete", func() bool {
					d, err := x.Adm.DescribeTransactions(ctx, p.TxnID)
					return err == nil && d[p.TxnID].Err == nil && strings.HasPrefix(d[p.TxnID].State, "Complete")
				})
			}
		}
		if !x.Target.Version().Since(4, 3) { // it keeps the marker until there is a leader
			back()
			complete()
			for i, p := range producers {
				x.Same(ends[i].name+": markers", p.ofOwn(p.marked(ctx, 0)), []byhand.Marker{{ProducerID: p.ID, Epoch: 1, Commit: ends[i].first}})
			}
			return
		}
		complete()
		back()
		for i, p := range producers {
			open := slices.DeleteFunc(p.active(ctx), func(a kmsg.DescribeProducersResponseTopicPartitionActiveProducer) bool { return a.ProducerID != p.ID })
			x.Same(ends[i].name+": open at the epoch", []any{len(open), open[0].ProducerEpoch, open[0].CurrentTxnStartOffset >= 0}, []any{1, int32(0), true})
			x.Same(ends[i].name+": markers", p.ofOwn(p.marked(ctx, 0)), []byhand.Marker(nil))
			x.Same(ends[i].name+": markers of the neighbour", p.ofOwn(p.marked(ctx, 1)), []byhand.Marker{{ProducerID: p.ID, Epoch: 1, Commit: ends[i].first}})
			if ends[i].writes != "" {
				x.Same("produce", p.produce(ctx, 0, ends[i].writes), int16(0))
			} else {
				x.Same("add", p.add(ctx, t.Name, 0), []int16{0})
			}
			x.Same("end", p.end(ctx, ends[i].later), int16(0))
			testkit.Eventually(ctx, x, "nothing of it is open", func() bool {
				return !slices.ContainsFunc(p.active(ctx), func(a kmsg.DescribeProducersResponseTopicPartitionActiveProducer) bool { return a.ProducerID == p.ID })
			})
			x.Same(ends[i].name+": markers at last", p.ofOwn(p.marked(ctx, 0)), []byhand.Marker{{ProducerID: p.ID, Epoch: 2, Commit: ends[i].later}})
		}
		var want []string
		for _, e := range ends {
			want = append(want, e.want...)
		}
		got := producers[0].log(ctx, 0, true)
		slices.Sort(want)
		slices.Sort(got.Values)
		x.Same("committed", got.Values, want)
		x.Same("all is decided", got.LastStable, got.HighWatermark)
	}},
}

// ofOwn are the markers of the producer's own id.
func (p *txn) ofOwn(all []byhand.Marker) (own []byhand.Marker) {
	for _, m := range all {
		if m.ProducerID == p.ID {
			own = append(own, m)
		}
	}
	return own
}

// txnCoordinator is the node that coordinates a transactional id.
func (x *X) txnCoordinator(ctx context.Context, id string) int32 {
	x.Helper()
	all := x.Adm.FindTxnCoordinators(ctx, id)
	x.Must(all[id].Err)
	return all[id].NodeID
}

const leavesMarkers = "markers that no coordinator of its own writes are kfake's, which looks at no epoch"

// marked gives the transaction markers of a partition.
func (p *txn) marked(ctx context.Context, partition int32) []byhand.Marker {
	p.Helper()
	return p.log(ctx, partition, false).Markers
}

// writeMarker does what a coordinator does that speaks that transaction.version,
// and gives the code of the answer.
func (p *txn) writeMarker(ctx context.Context, marker byhand.Marker, version int8) int16 {
	p.Helper()
	topic := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	topic.Topic, topic.Partitions = p.topic.Name, []int32{0}
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed, m.TransactionVersion = marker.ProducerID, marker.Epoch, marker.Commit, version
	m.Topics = append(m.Topics, topic)
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Markers = append(req.Markers, m)
	kresp, err := p.Client.Broker(int(p.Leader(ctx, p.topic, 0))).Request(ctx, req)
	p.Must(err)
	return kresp.(*kmsg.WriteTxnMarkersResponse).Markers[0].Topics[0].Partitions[0].ErrorCode
}
