package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Codes of the transaction side.
const (
	codeNotLeader             = 6
	codeOutOfOrder            = 45
	codeInvalidProducerEpoch  = 47
	codeInvalidTxnState       = 48
	codeInvalidIDMapping      = 49
	codeInvalidTimeout        = 50
	codeConcurrentTxns        = 51
	codeNotAttempted          = 55
	codeProducerFenced        = 90
	codeTransactionIDNotFound = 105
)

// lastEpoch is the highest epoch that a producer id is used at.
const lastEpoch = 32766

// txn is a producer with a topic of its own.
type txn struct {
	*X
	*byhand.Producer
	topic Topic
}

// Txn makes a producer that has an identity.
func (x *X) Txn(ctx context.Context, partitions int32) *txn {
	x.Helper()
	return x.TxnTo(ctx, x.Topic(ctx, partitions))
}

// TxnTo is Txn with a topic that is there.
func (x *X) TxnTo(ctx context.Context, t Topic) *txn {
	x.Helper()
	p := &txn{x, byhand.NewProducer(x.Client, x.Fresh("id")), t}
	x.Same("code of InitProducerId", p.init(ctx), int16(0))
	x.Same("first epoch", p.Epoch, int16(0))
	return p
}

// again is another process with the same transactional id: it knows no identity
// yet.
func (p *txn) again() *txn {
	next := &txn{p.X, byhand.NewProducer(p.Client, p.TxnID), p.topic}
	next.Timeout = p.Timeout
	return next
}

// at is the same producer with an identity set by hand.
func (p *txn) at(id int64, epoch int16) *txn {
	q := p.again()
	q.ID, q.Epoch = id, epoch
	return q
}

// settled repeats a request while the markers of the transaction before are
// being written, or the partition's leader does not know yet that it leads.
func (p *txn) settled(ctx context.Context, do func(context.Context) (int16, error)) int16 {
	p.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		code, err := do(ctx)
		p.Must(err)
		if code != codeConcurrentTxns && code != codeNotLeader {
			return code
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.Fatalf("code %d to the end: %v", code, context.Cause(ctx))
		}
	}
}

func (p *txn) init(ctx context.Context) int16 {
	p.Helper()
	return p.settled(ctx, p.Init)
}

func (p *txn) end(ctx context.Context, commit bool) int16 {
	p.Helper()
	return p.settled(ctx, func(ctx context.Context) (int16, error) { return p.End(ctx, commit) })
}

func (p *txn) produce(ctx context.Context, partition int32, values ...string) int16 {
	p.Helper()
	return p.settled(ctx, func(ctx context.Context) (int16, error) {
		return p.Produce(ctx, p.Leader(ctx, p.topic, partition), p.topic.Name, p.topic.Part(partition), values...)
	})
}

// ends runs a transaction of one record to its end and waits for the markers;
// it gives the identity it ran with.
func (p *txn) ends(ctx context.Context, commit bool) (id int64, epoch int16) {
	p.Helper()
	id, epoch = p.ID, p.Epoch
	p.Same("produce", p.produce(ctx, 0, "one"), int16(0))
	p.Same("end", p.end(ctx, commit), int16(0))
	want := "CompleteAbort"
	if commit {
		want = "CompleteCommit"
	}
	p.becomes(ctx, want)
	return id, epoch
}

// becomes waits until the coordinator shows the state.
func (p *txn) becomes(ctx context.Context, state string) {
	p.Helper()
	testkit.Eventually(ctx, p, "state "+state, func() bool { return p.described(ctx).State == state })
}

func (p *txn) described(ctx context.Context) kmsg.DescribeTransactionsResponseTransactionState {
	p.Helper()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{p.TxnID}
	resp, err := req.RequestWith(ctx, p.Client)
	p.Must(err)
	return resp.TransactionStates[0]
}

// log reads a partition of the topic.
func (p *txn) log(ctx context.Context, partition int32, committed bool) byhand.Log {
	p.Helper()
	got, err := byhand.ReadLog(ctx, p.Client, p.Leader(ctx, p.topic, partition), p.topic.Name, p.topic.Part(partition), committed)
	p.Must(err)
	p.Same("code of reading", got.Code, int16(0))
	return got
}

// identity is what an answer gave or what a producer is at.
func (p *txn) identity() string { return fmt.Sprintf("%d at %d", p.ID, p.Epoch) }

// longest is the one case that takes long on Kafka: it is begun first.
var longest = []Case{
	{Name: "transactions/the last epoch", Limit: 5 * time.Minute, Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		id := p.ID
		for p.Epoch < lastEpoch {
			if code := p.end(ctx, false); code != 0 || p.ID != id {
				x.Fatalf("abort: code %d, identity %s", code, p.identity())
			}
		}
		last := p.at(id, lastEpoch)
		x.Same("produce", last.produce(ctx, 0, "last"), int16(0))
		x.Same("commit", last.end(ctx, true), int16(0))
		last.becomes(ctx, "CompleteCommit")
		x.Same("another id", []any{last.ID != id, last.Epoch}, []any{true, int16(0)})
		x.Same("the answer was lost", p.at(id, lastEpoch).endAs(ctx, true), endAnswer{0, last.identity()})
		x.Same("the other result", p.at(id, lastEpoch).endAs(ctx, false), endAnswer{codeInvalidTxnState, ""})
		x.Same("an older epoch of the id", p.at(id, lastEpoch-1).endAs(ctx, true), endAnswer{codeInvalidIDMapping, ""})
		x.Same("a zombie's produce", p.at(id, lastEpoch).produce(ctx, 0, "zombie"), int16(codeInvalidProducerEpoch))
		x.Same("it goes on", last.produce(ctx, 0, "next"), int16(0))
		x.Same("the old id", p.at(id, lastEpoch).endAs(ctx, true), endAnswer{codeInvalidIDMapping, ""})
		x.Same("commit", last.end(ctx, true), int16(0))
		last.becomes(ctx, "CompleteCommit")
		x.Same("committed", last.log(ctx, 0, true).Values, []string{"last", "next"})
		x.Same("markers", last.marked(ctx, 0), []byhand.Marker{
			{ProducerID: id, Epoch: lastEpoch + 1, Commit: true}, {ProducerID: last.ID, Epoch: 1, Commit: true},
		})
	}},
}

// transactions is the transaction coordinator's side (KIP-98, KIP-890).
var transactions = slices.Concat([]Case{
	// Whoever takes an id can know how the transaction before ended, and at what epoch,
	// if it asks before each InitProducerId and nobody is in between.
	{Name: "transactions/what is told of an id that is taken", Run: func(ctx context.Context, x *X) {
		for _, c := range []struct {
			name   string
			ended  bool // before it is taken
			commit bool
			state  string
			epochs int16 // from the transaction's to the one told at last
		}{
			{"committed", true, true, "CompleteCommit", 1},
			{"aborted", true, false, "CompleteAbort", 1},
			{"open", false, false, "CompleteAbort", 1},
		} {
			p := x.Txn(ctx, 1)
			id, epoch := p.ID, p.Epoch
			if c.ended {
				p.ends(ctx, c.commit)
			} else {
				x.Same("produce", p.produce(ctx, 0, "left"), int16(0))
				d := p.described(ctx)
				x.Same(c.name+": told while it is open", []any{d.State, d.ProducerID, d.ProducerEpoch, len(d.Topics)}, []any{"Ongoing", id, epoch, 1})
				x.Same(c.name+": where", []any{d.Topics[0].Topic, d.Topics[0].Partitions}, []any{p.topic.Name, []int32{0}})
			}
			heir := p.again()
			told := heir.described(ctx)
			code := int16(codeConcurrentTxns)
			for tick := time.NewTicker(10 * time.Millisecond); code == codeConcurrentTxns; <-tick.C {
				told = heir.described(ctx)
				var err error
				code, err = heir.Init(ctx)
				x.Must(err)
			}
			x.Same(c.name+": taken", []any{code, heir.ID}, []any{int16(0), id})
			prepared := strings.Replace(c.state, "Complete", "Prepare", 1) // if it was completed after that was told
			x.Same(c.name+": told at last", []any{told.State == c.state || told.State == prepared, told.ProducerID, told.ProducerEpoch}, []any{true, id, epoch + c.epochs})
			x.Same(c.name+": one epoch more", heir.Epoch, told.ProducerEpoch+1)
			x.Same(c.name+": told afterwards", heir.described(ctx).State, "Empty")
		}
	}},
	{Name: "transactions/commit", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		id := p.ID
		x.Same("produce", p.produce(ctx, 0, "a", "b"), int16(0))
		x.Same("uncommitted before", p.log(ctx, 0, false).Values, []string{"a", "b"})
		x.Same("committed before", p.log(ctx, 0, true).Values, []string(nil))
		x.Same("end", p.end(ctx, true), int16(0))
		x.Same("identity", []any{p.ID, p.Epoch}, []any{id, int16(1)})
		testkit.Eventually(ctx, x, "the records are committed", func() bool { return len(p.log(ctx, 0, true).Values) == 2 })
		x.Same("a marker ends the log", p.log(ctx, 0, true).HighWatermark, int64(3))
	}},
	{Name: "transactions/abort", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		id := p.ID
		x.Same("produce", p.produce(ctx, 0, "a", "b"), int16(0))
		x.Same("end", p.end(ctx, false), int16(0))
		x.Same("identity", []any{p.ID, p.Epoch}, []any{id, int16(1)})
		p.becomes(ctx, "CompleteAbort")
		testkit.Eventually(ctx, x, "the marker is there", func() bool { return p.log(ctx, 0, true).LastStable == 3 })
		x.Same("committed", p.log(ctx, 0, true).Values, []string(nil))
		x.Same("aborted producers", p.log(ctx, 0, true).AbortedProducers, []int64{id})
		x.Same("uncommitted", p.log(ctx, 0, false).Values, []string{"a", "b"})
	}},
	{Name: "transactions/one after the other", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		for i := range 6 {
			x.Same("produce", p.produce(ctx, 0, fmt.Sprint(i)), int16(0))
			x.Same("end", p.end(ctx, i%2 == 0), int16(0))
			x.Same("epoch", p.Epoch, int16(i+1))
		}
		p.becomes(ctx, "CompleteAbort")
		x.Same("committed", p.log(ctx, 0, true).Values, []string{"0", "2", "4"})
		x.Same("uncommitted", p.log(ctx, 0, false).Values, []string{"0", "1", "2", "3", "4", "5"})
	}},
	{Name: "transactions/two partitions end together", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 2)
		x.Same("produce", []int16{p.produce(ctx, 0, "a"), p.produce(ctx, 1, "b")}, []int16{0, 0})
		x.Same("neither", [][]string{p.log(ctx, 0, true).Values, p.log(ctx, 1, true).Values}, [][]string{nil, nil})
		x.Same("end", p.end(ctx, true), int16(0))
		p.becomes(ctx, "CompleteCommit")
		x.Same("both", [][]string{p.log(ctx, 0, true).Values, p.log(ctx, 1, true).Values}, [][]string{{"a"}, {"b"}})
	}},
	{Name: "transactions/an open one holds the last stable offset", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		q := x.TxnTo(ctx, p.topic)
		x.Same("produce", []int16{p.produce(ctx, 0, "p"), q.produce(ctx, 0, "q")}, []int16{0, 0})
		x.Feed(ctx, p.topic, 0, 1)
		x.Same("the later one ends", q.end(ctx, true), int16(0))
		q.becomes(ctx, "CompleteCommit")
		log := p.log(ctx, 0, true)
		x.Same("last stable offset", log.LastStable, int64(0))
		x.Same("high watermark", log.HighWatermark, int64(4))
		x.Same("committed", log.Values, []string(nil))
		x.Same("uncommitted", p.log(ctx, 0, false).Values, []string{"p", "q", "0"})
		x.Same("the earlier one ends", p.end(ctx, false), int16(0))
		p.becomes(ctx, "CompleteAbort")
		log = p.log(ctx, 0, true)
		x.Same("last stable offset", log.LastStable, int64(5))
		x.Same("committed", log.Values, []string{"q", "0"})
	}},
	{Name: "transactions/offsets by isolation level", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		x.Feed(ctx, p.topic, 0, 2)
		x.Same("produce", p.produce(ctx, 0, "p"), int16(0))
		end, err := x.Adm.ListEndOffsets(ctx, p.topic.Name)
		x.Must(err)
		stable, err := x.Adm.ListCommittedOffsets(ctx, p.topic.Name)
		x.Must(err)
		at, _ := end.Lookup(p.topic.Name, 0)
		x.Same("end", at.Offset, int64(3))
		at, _ = stable.Lookup(p.topic.Name, 0)
		x.Same("stable end", at.Offset, int64(2))
	}},
	{Name: "transactions/empty commit", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		x.Same("commit", p.end(ctx, true), int16(codeInvalidTxnState))
		x.Same("epoch", p.Epoch, int16(0))
		x.Same("it goes on", p.produce(ctx, 0, "a"), int16(0))
		x.Same("commit", p.end(ctx, true), int16(0))
	}},
	{Name: "transactions/empty abort bumps", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		for i := range 3 {
			x.Same("abort", p.end(ctx, false), int16(0))
			x.Same("epoch", p.Epoch, int16(i+1))
		}
		x.Same("it goes on", p.produce(ctx, 0, "a"), int16(0))
		x.Same("commit", p.end(ctx, true), int16(0))
	}},
	{Name: "transactions/empty after another", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		p.ends(ctx, true)
		x.Same("commit", p.end(ctx, true), int16(codeInvalidTxnState))
		x.Same("abort", p.end(ctx, false), int16(0))
		x.Same("epoch", p.Epoch, int16(2))
		x.Same("commit", p.end(ctx, true), int16(codeInvalidTxnState))
		p.ends(ctx, false)
		x.Same("commit", p.end(ctx, true), int16(codeInvalidTxnState))
	}},
	{Name: "transactions/the identity is the same until used up", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		for i := range 3 {
			next := p.again()
			x.Same("init without a claim", next.init(ctx), int16(0))
			x.Same("identity", next.identity(), p.at(p.ID, int16(i+1)).identity())
		}
	}},
	{Name: "transactions/init claims its identity", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		id := p.ID
		x.Same("claim", p.init(ctx), int16(0))
		x.Same("identity", p.identity(), p.at(id, 1).identity())
		x.Same("the answer was lost: claim again", p.at(id, 0).initAs(ctx), initAnswer{0, p.identity()})
		x.Same("claim the new one", p.init(ctx), int16(0))
		x.Same("identity", p.identity(), p.at(id, 2).identity())
		x.Same("claim an old one", p.at(id, 0).initAs(ctx).Code, int16(codeProducerFenced))
		x.Same("claim a later one", p.at(id, 9).initAs(ctx).Code, int16(codeProducerFenced))
		x.Same("claim another id", p.at(id+1000000, 2).initAs(ctx).Code, int16(codeProducerFenced))
	}},
	{Name: "transactions/init of bad claims", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		x.Same("an id without an epoch", p.at(p.ID, -1).initAs(ctx).Code, int16(codeInvalidRequest))
		x.Same("an epoch without an id", p.at(-1, 0).initAs(ctx).Code, int16(codeInvalidRequest))
		q := p.again()
		q.TxnID = ""
		x.Same("no transactional id", q.initAs(ctx).Code, int16(codeInvalidRequest))
	}},
	{Name: "transactions/init with bad timeouts", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		for _, d := range []time.Duration{0, -time.Millisecond, 15*time.Minute + time.Millisecond} {
			p.Timeout = d
			x.Same(d.String(), p.initAs(ctx).Code, int16(codeInvalidTimeout))
		}
		p.Timeout = 15 * time.Minute
		x.Same("the longest", p.initAs(ctx).Code, int16(0))
		x.Same("timeout shown", p.described(ctx).TimeoutMillis, int32(15*60*1000))
	}},
	{Name: "transactions/init fences an open one", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		x.Same("produce", p.produce(ctx, 0, "zombie"), int16(0))
		next := p.again()
		x.Same("init", next.init(ctx), int16(0))
		x.Same("identity", next.identity(), p.at(p.ID, 2).identity())
		x.Same("the open one was aborted", p.log(ctx, 0, true).AbortedProducers, []int64{p.ID})
		x.Same("zombie's commit", p.end(ctx, true), int16(codeProducerFenced))
		x.Same("zombie's abort", p.end(ctx, false), int16(codeProducerFenced))
		x.Same("zombie's produce", p.produce(ctx, 0, "zombie"), int16(codeInvalidProducerEpoch))
		x.Same("zombie's init", p.initAs(ctx).Code, int16(codeProducerFenced))
		x.Same("the other works", next.produce(ctx, 0, "good"), int16(0))
		x.Same("and ends", next.end(ctx, true), int16(0))
		next.becomes(ctx, "CompleteCommit")
		x.Same("committed", p.log(ctx, 0, true).Values, []string{"good"})
	}},
	{Name: "transactions/init after the end fences too", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		id, epoch := p.ends(ctx, true)
		next := p.again()
		x.Same("init", next.init(ctx), int16(0))
		x.Same("identity", next.identity(), p.at(id, 2).identity())
		x.Same("commit at the old epoch says nothing any more", p.at(id, epoch).endAs(ctx, true), endAnswer{codeProducerFenced, ""})
		x.Same("abort neither", p.at(id, epoch).endAs(ctx, false), endAnswer{codeProducerFenced, ""})
		x.Same("produce at the epoch between", p.produce(ctx, 0, "x"), int16(codeInvalidProducerEpoch))
	}},
	{Name: "transactions/a claim after the end takes the evidence", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		id, epoch := p.ends(ctx, true)
		claim := p.at(id, epoch)
		x.Same("claim", claim.initAs(ctx), initAnswer{0, p.identity()})
		x.Same("state", p.described(ctx).State, "Empty")
		x.Same("commit at the old epoch", p.at(id, epoch).endAs(ctx, true), endAnswer{codeProducerFenced, ""})
	}},
	{Name: "transactions/of unknown ids", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		stranger := p.at(p.ID, 0)
		stranger.TxnID = x.Fresh("nobody")
		x.Same("end", stranger.endAs(ctx, true), endAnswer{codeInvalidIDMapping, ""})
		x.Same("describe", stranger.described(ctx).ErrorCode, int16(codeTransactionIDNotFound))
		x.Same("produce", stranger.produce(ctx, 0, "a"), int16(codeInvalidIDMapping))
		other := x.TxnTo(ctx, p.topic)
		x.Same("another's producer id, end", p.at(other.ID, 0).endAs(ctx, true), endAnswer{codeInvalidIDMapping, ""})
		x.Same("another's producer id, produce", p.at(other.ID, 0).produce(ctx, 0, "a"), int16(codeInvalidIDMapping))
		x.Same("nothing was written", p.log(ctx, 0, false).Values, []string(nil))
	}},
	{Name: "transactions/of wrong epochs", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		x.Same("produce", p.produce(ctx, 0, "a"), int16(0))
		for _, epoch := range []int16{1, 2, 32767} {
			x.Same("commit", p.at(p.ID, epoch).endAs(ctx, true), endAnswer{codeProducerFenced, ""})
			x.Same("abort", p.at(p.ID, epoch).endAs(ctx, false), endAnswer{codeProducerFenced, ""})
		}
		x.Same("commit", p.end(ctx, true), int16(0))
	}},
	{Name: "transactions/produce at a wrong epoch", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		id, epoch := p.ends(ctx, true)
		x.Same("older", p.at(id, epoch).produce(ctx, 0, "late"), int16(codeInvalidProducerEpoch))
		x.Same("newer", p.at(id, p.Epoch+1).produce(ctx, 0, "early"), int16(codeInvalidProducerEpoch))
		x.Same("the right one", p.produce(ctx, 0, "good"), int16(0))
		x.Same("commit", p.end(ctx, true), int16(0))
		p.becomes(ctx, "CompleteCommit")
		x.Same("committed", p.log(ctx, 0, true).Values, []string{"one", "good"})
	}},
	{Name: "transactions/timeout", Limit: longLimit, Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1).again()
		p.Timeout = time.Second
		x.Same("init", p.init(ctx), int16(0))
		id, epoch := p.ID, p.Epoch
		x.Same("produce", p.produce(ctx, 0, "zombie"), int16(0))
		p.becomes(ctx, "CompleteAbort") // by the coordinator
		x.Same("aborted producers", p.log(ctx, 0, true).AbortedProducers, []int64{id})
		x.Same("zombie's produce", p.produce(ctx, 0, "zombie"), int16(codeInvalidProducerEpoch))
		x.Same("zombie's commit", p.endAs(ctx, true), endAnswer{codeInvalidTxnState, ""})
		x.Same("zombie's abort", p.at(id, epoch).endAs(ctx, false), endAnswer{0, p.at(id, epoch+1).identity()})
		x.Same("epoch shown", p.described(ctx).ProducerEpoch, epoch+1)
		next := p.at(id, epoch+1)
		x.Same("it goes on", next.produce(ctx, 0, "good"), int16(0))
		x.Same("and ends", next.end(ctx, true), int16(0))
		next.becomes(ctx, "CompleteCommit")
		x.Same("committed", p.log(ctx, 0, true).Values, []string{"good"})
	}},
	{Name: "transactions/describe", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 2)
		d := p.described(ctx)
		x.Same("at first", []any{d.ErrorCode, d.State, d.ProducerID, d.ProducerEpoch, d.TimeoutMillis, d.StartTimestamp, len(d.Topics)},
			[]any{int16(0), "Empty", p.ID, int16(0), int32(60000), int64(-1), 0})
		x.Same("produce", []int16{p.produce(ctx, 0, "a"), p.produce(ctx, 1, "b")}, []int16{0, 0})
		d = p.described(ctx)
		slices.Sort(d.Topics[0].Partitions)
		x.Same("open", []any{d.State, d.ProducerEpoch, d.StartTimestamp > 0, d.Topics[0].Topic, d.Topics[0].Partitions},
			[]any{"Ongoing", int16(0), true, p.topic.Name, []int32{0, 1}})
		x.Same("end", p.end(ctx, true), int16(0))
		p.becomes(ctx, "CompleteCommit")
		d = p.described(ctx)
		x.Same("ended", []any{d.ProducerID, d.ProducerEpoch, d.StartTimestamp > 0, len(d.Topics)}, []any{p.ID, int16(1), true, 0})
	}},
	{Name: "transactions/list", Run: func(ctx context.Context, x *X) {
		p, q := x.Txn(ctx, 1), x.Txn(ctx, 1)
		x.Same("produce", p.produce(ctx, 0, "a"), int16(0))
		x.Same("by state and id", p.listed(ctx, []string{"Ongoing"}, []int64{p.ID, q.ID}), []string{p.TxnID + " Ongoing"})
		x.Same("by id", q.listed(ctx, nil, []int64{q.ID}), []string{q.TxnID + " Empty"})
		x.Same("by another state", p.listed(ctx, []string{"CompleteCommit"}, []int64{p.ID, q.ID}), []string(nil))
		x.Same("by an unknown id", p.listed(ctx, nil, []int64{1 << 40}), []string(nil))
	}},
	{Name: "transactions/list with an unknown state", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		req := kmsg.NewPtrListTransactionsRequest()
		req.StateFilters, req.ProducerIDFilters = []string{"Empty", "Nonsense"}, []int64{p.ID}
		resp, err := req.RequestWith(ctx, x.Client)
		x.Must(err)
		x.Same("code", resp.ErrorCode, int16(0))
		x.Same("named", resp.UnknownStateFilters, []string{"Nonsense"})
		x.Same("transactions", len(resp.TransactionStates), 1)
	}},
	{Name: "transactions/producers of a partition", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		x.Feed(ctx, p.topic, 0, 2)
		x.Same("produce", p.produce(ctx, 0, "a"), int16(0))
		open := p.active(ctx)
		x.Same("open", []any{len(open), open[0].ProducerID, open[0].ProducerEpoch, open[0].CurrentTxnStartOffset}, []any{1, p.ID, int32(0), int64(2)})
		x.Same("end", p.end(ctx, true), int16(0))
		testkit.Eventually(ctx, x, "nothing is open", func() bool {
			return !slices.ContainsFunc(p.active(ctx), func(a kmsg.DescribeProducersResponseTopicPartitionActiveProducer) bool {
				return a.CurrentTxnStartOffset >= 0
			})
		})
	}},
	{Name: "transactions/partitions added by hand", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 2)
		x.Same("add", p.add(ctx, p.topic.Name, 0, 1), []int16{0, 0})
		x.Same("add again", p.add(ctx, p.topic.Name, 0), []int16{0})
		x.Same("state", p.described(ctx).State, "Ongoing")
		x.Same("commit", p.end(ctx, true), int16(0))
		x.Same("epoch", p.Epoch, int16(1))
		p.becomes(ctx, "CompleteCommit")
		x.Same("add at the old epoch", p.at(p.ID, 0).add(ctx, p.topic.Name, 0), []int16{codeProducerFenced})
		x.Same("add with another id", p.at(p.ID+1000000, 1).add(ctx, p.topic.Name, 0), []int16{codeInvalidIDMapping})
		stranger := p.at(p.ID, 1)
		stranger.TxnID = x.Fresh("nobody")
		x.Same("add to an unknown id", stranger.add(ctx, p.topic.Name, 0), []int16{codeInvalidIDMapping})
	}},
	{Name: "transactions/a partition that is not there", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		x.Same("one of two", p.add(ctx, p.topic.Name, 0, 9), []int16{codeNotAttempted, codeUnknownPartition})
		x.Same("nothing began", p.described(ctx).State, "Empty")
		x.Same("an unknown topic", p.add(ctx, x.Fresh("nothing"), 0), []int16{codeUnknownPartition})
		x.Same("the good one", p.add(ctx, p.topic.Name, 0), []int16{0})
	}},
	{Name: "transactions/consumer offsets", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		group := x.Fresh("cg")
		x.commits(ctx, group, p.topic, 0)
		x.Same("commit offsets", p.offsets(ctx, group, 1), int16(0))
		x.Same("not yet", x.committed(ctx, group, p.topic), int64(0))
		x.Same("end", p.end(ctx, true), int16(0))
		testkit.Eventually(ctx, x, "the offset is committed", func() bool { return x.committed(ctx, group, p.topic) == 1 })
		x.Same("commit offsets", p.offsets(ctx, group, 2), int16(0))
		x.Same("end", p.end(ctx, false), int16(0))
		p.becomes(ctx, "CompleteAbort")
		x.Same("as before", x.committed(ctx, group, p.topic), int64(1))
		x.Same("a zombie's", p.at(p.ID, 0).offsets(ctx, group, 3), int16(codeInvalidProducerEpoch))
	}},
	{Name: "transactions/consumer offsets added by hand", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		x.Same("add", p.addOffsets(ctx, x.Fresh("cg")), int16(0))
		x.Same("state", p.described(ctx).State, "Ongoing")
		x.Same("end", p.end(ctx, true), int16(0))
		x.Same("a wrong epoch", p.at(p.ID, 7).addOffsets(ctx, x.Fresh("cg")), int16(codeProducerFenced))
	}},
	{Name: "transactions/of a topic that is deleted", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		kept := p.topic
		p.topic = x.Topic(ctx, 1)
		x.Same("produce", p.produce(ctx, 0, "gone"), int16(0))
		gone := p.topic
		p.topic = kept
		x.Same("produce", p.produce(ctx, 0, "kept"), int16(0))
		_, err := x.Adm.DeleteTopics(ctx, gone.Name)
		x.Must(err)
		x.Same("commit", p.end(ctx, true), int16(0))
		p.becomes(ctx, "CompleteCommit")
		x.Same("committed", p.log(ctx, 0, true).Values, []string{"kept"})
	}},
	{Name: "transactions/a sequence that is missing", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		x.Same("produce", p.produce(ctx, 0, "a"), int16(0))
		p.Seq[p.topic.Part(0)] = 5
		x.Same("a gap", p.produce(ctx, 0, "b"), int16(codeOutOfOrder))
		p.Seq[p.topic.Part(0)] = 0
		x.Same("the first again", p.produce(ctx, 0, "a"), int16(0)) // a duplicate is answered, not written
		x.Same("commit", p.end(ctx, true), int16(0))
		p.becomes(ctx, "CompleteCommit")
		x.Same("committed", p.log(ctx, 0, true).Values, []string{"a"})
	}},
}, retries())

// endAnswer and initAnswer are a code, and the identity given with 0.
type (
	endAnswer struct {
		Code     int16
		Identity string
	}
	initAnswer struct {
		Code     int16
		Identity string
	}
)

func (p *txn) endAs(ctx context.Context, commit bool) endAnswer {
	p.Helper()
	if code := p.end(ctx, commit); code != 0 {
		return endAnswer{code, ""}
	}
	return endAnswer{0, p.identity()}
}

func (p *txn) initAs(ctx context.Context) initAnswer {
	p.Helper()
	if code := p.init(ctx); code != 0 {
		return initAnswer{code, ""}
	}
	return initAnswer{0, p.identity()}
}

// retries is the table of what the same EndTxn, or the other, answers at the
// epoch of a transaction that has ended: how a lost answer is resolved.
func retries() (out []Case) {
	for _, committed := range []bool{true, false} {
		for _, commit := range []bool{true, false} {
			name := fmt.Sprintf("transactions/%s at the epoch of one that was %s", verb(commit), past(committed))
			out = append(out, Case{Name: name, Run: func(ctx context.Context, x *X) {
				p := x.Txn(ctx, 1)
				id, epoch := p.ends(ctx, committed)
				want := endAnswer{codeInvalidTxnState, ""}
				if commit == committed {
					want = endAnswer{0, p.identity()}
				}
				for range 3 { // as often as one likes
					x.Same("answer", p.at(id, epoch).endAs(ctx, commit), want)
				}
				x.Same("two epochs back", p.at(id, epoch-1).endAs(ctx, commit).Code, int16(codeProducerFenced))
				x.Same("it goes on", p.produce(ctx, 0, "two"), int16(0))
				x.Same("not once the next began", p.at(id, epoch).endAs(ctx, commit), endAnswer{codeProducerFenced, ""})
				x.Same("commit", p.end(ctx, true), int16(0))
			}})
		}
	}
	return out
}

func verb(commit bool) string {
	if commit {
		return "commit"
	}
	return "abort"
}

func past(commit bool) string {
	if commit {
		return "committed"
	}
	return "aborted"
}

// listed lists transactions as "id state", in order.
func (p *txn) listed(ctx context.Context, states []string, ids []int64) (out []string) {
	p.Helper()
	req := kmsg.NewPtrListTransactionsRequest()
	req.StateFilters, req.ProducerIDFilters = states, ids
	resp, err := req.RequestWith(ctx, p.Client)
	p.Must(err)
	p.Same("code of the list", resp.ErrorCode, int16(0))
	for _, t := range resp.TransactionStates {
		out = append(out, t.TransactionalID+" "+t.TransactionState)
	}
	slices.Sort(out)
	return out
}

// active describes the producers of partition 0.
func (p *txn) active(ctx context.Context) []kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	p.Helper()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = p.topic.Name, []int32{0}
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = append(req.Topics, rt)
	kresp, err := p.Client.Broker(int(p.Leader(ctx, p.topic, 0))).Request(ctx, req)
	p.Must(err)
	part := kresp.(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0]
	p.Same("code of the producers", part.ErrorCode, int16(0))
	return slices.DeleteFunc(part.ActiveProducers, func(a kmsg.DescribeProducersResponseTopicPartitionActiveProducer) bool {
		return a.CurrentTxnStartOffset < 0 // idle ones may be named or not
	})
}

// add registers partitions as clients without KIP-890 do (version 3), and gives
// the code of each.
func (p *txn) add(ctx context.Context, topic string, partitions ...int32) (codes []int16) {
	p.Helper()
	rt := kmsg.NewAddPartitionsToTxnRequestTopic()
	rt.Topic, rt.Partitions = topic, partitions
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Topics = p.TxnID, p.ID, p.Epoch, append(req.Topics, rt)
	old := p.AtMost(req.Key(), 3)
	p.Same("settled", p.settled(ctx, func(ctx context.Context) (int16, error) {
		resp, err := req.RequestWith(ctx, old)
		if err != nil {
			return 0, err
		}
		codes = make([]int16, len(partitions))
		for _, part := range resp.Topics[0].Partitions { // in any order
			codes[slices.Index(partitions, part.Partition)] = part.ErrorCode
		}
		if slices.Contains(codes, int16(codeConcurrentTxns)) {
			return codeConcurrentTxns, nil
		}
		return 0, nil
	}), int16(0))
	return codes
}

// addOffsets registers a group as clients without KIP-890 do.
func (p *txn) addOffsets(ctx context.Context, group string) int16 {
	p.Helper()
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.TxnID, p.ID, p.Epoch, group
	return p.settled(ctx, func(ctx context.Context) (int16, error) {
		resp, err := req.RequestWith(ctx, p.Client)
		if err != nil {
			return 0, err
		}
		return resp.ErrorCode, nil
	})
}

// AtMost is a client that speaks a request in no newer version.
func (x *X) AtMost(key, version int16) *kgo.Client {
	x.Helper()
	most := kversion.Stable()
	most.SetMaxKeyVersion(key, version)
	client, err := kgo.NewClient(kgo.SeedBrokers(x.Target.Seeds()...), kgo.MaxVersions(most), kgo.DisableClientMetrics())
	x.Must(err)
	x.Cleanup(client.Close)
	return client
}

// offsets commits an offset of partition 0 within the transaction.
func (p *txn) offsets(ctx context.Context, group string, offset int64) int16 {
	p.Helper()
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset = 0, offset
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID, rt.Partitions = p.topic.Name, p.topic.ID, append(rt.Partitions, rp)
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Topics = p.TxnID, group, p.ID, p.Epoch, append(req.Topics, rt)
	return p.settled(ctx, func(ctx context.Context) (int16, error) {
		resp, err := req.RequestWith(ctx, p.Client)
		if err != nil {
			return 0, err
		}
		return resp.Topics[0].Partitions[0].ErrorCode, nil
	})
}

// commits commits an offset of partition 0 outside of any transaction.
func (x *X) commits(ctx context.Context, group string, t Topic, offset int64) {
	x.Helper()
	var all kadm.Offsets
	all.Add(kadm.Offset{Topic: t.Name, Partition: 0, At: offset, LeaderEpoch: -1})
	x.Must(x.Adm.CommitAllOffsets(ctx, group, all))
}

// committed is a consumer group's offset of partition 0.
func (x *X) committed(ctx context.Context, group string, t Topic) int64 {
	x.Helper()
	got, err := x.Adm.FetchOffsets(ctx, group)
	x.Must(err)
	at, ok := got.Lookup(t.Name, 0)
	if !ok {
		x.Fatalf("group %s has no offset", group)
	}
	return at.At
}
