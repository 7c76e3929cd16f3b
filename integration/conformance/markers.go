package conformance

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn/integration/byhand"
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
