package txn

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Partition is a partition that takes part in a transaction.
type Partition struct {
	Topic     string
	Partition int32
}

// Offset is an offset to commit for a consumer group with the transaction.
type Offset struct {
	Group      string
	MemberID   string
	Generation int32
	Partition
	Offset      int64
	LeaderEpoch int32
	Metadata    *string
}

// Backend is what the coordinator needs of the cluster. Its methods may do I/O
// and are never called under a lock.
type Backend interface {
	// NewProducerID makes the logs know a producer id, never given before.
	NewProducerID(ctx context.Context, txnID string) (int64, error)
	// WriteMarker writes a transaction marker to the partition's leader and
	// tries until it could, or ctx ends.
	WriteMarker(ctx context.Context, p Partition, producerID int64, epoch int16, commit bool) error
	// CommitOffsets writes a committed transaction's group offsets.
	CommitOffsets(ctx context.Context, offsets []Offset) error
	// ShareOutcome resolves staged acknowledgements.
	ShareOutcome(producerID int64, markerEpoch int16, commit bool)
	// Coordinator is the node that coordinates the id.
	Coordinator(txnID string) (node int32)
}

// Config of a Coordinator.
type Config struct {
	Backend    Backend
	MaxTimeout time.Duration // transaction.max.timeout.ms; default 15 min
	StateTopic string        // name under which staged acknowledgements are listed
	Logger     *slog.Logger
	Die        context.Context // ends with the cluster
}

// Coordinator is safe for concurrent use.
type Coordinator struct {
	cfg Config

	mu     sync.Mutex
	txns   map[string]*transaction
	hold   func(ctx context.Context, txnID string, commit bool)
	closed bool
	wg     sync.WaitGroup
}

// transaction is the state of one transactional id.
type transaction struct {
	identity
	name    string
	timeout time.Duration
	parts   map[Partition]struct{}
	offsets []Offset
	began   time.Time
	timer   *time.Timer
	done    chan struct{} // closed when the markers of the present end are written
}

// New makes a Coordinator without transactions.
func New(cfg Config) *Coordinator {
	if cfg.MaxTimeout == 0 {
		cfg.MaxTimeout = 15 * time.Minute
	}
	return &Coordinator{cfg: cfg, txns: make(map[string]*transaction)}
}

// HoldMarkers sets a function that is called before the markers of each ending
// transaction are written; while it blocks, the transaction stays in
// Prepare*. EndTxn is then answered at once, as Kafka does; without it EndTxn
// is answered after markers and acknowledgements are applied. Nil undoes it.
func (c *Coordinator) HoldMarkers(fn func(ctx context.Context, txnID string, commit bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold = fn
}

// Close stops timers and waits for markers under way; Die must have ended.
func (c *Coordinator) Close() {
	c.mu.Lock()
	c.closed = true
	for _, t := range c.txns {
		if t.timer != nil {
			t.timer.Stop()
		}
	}
	c.mu.Unlock()
	c.wg.Wait()
}

// InitProducerID answers key 22 for a transactional id.
func (c *Coordinator) InitProducerID(ctx context.Context, node int32, req *kmsg.InitProducerIDRequest) *kmsg.InitProducerIDResponse {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	name := *req.TransactionalID
	timeout := time.Duration(req.TransactionTimeoutMillis) * time.Millisecond
	switch {
	case name == "" || (req.ProducerID >= 0) != (req.ProducerEpoch >= 0):
		resp.ErrorCode = codeInvalidRequest
		return resp
	case c.cfg.Backend.Coordinator(name) != node:
		resp.ErrorCode = codeNotCoordinator
		return resp
	case timeout <= 0 || timeout > c.cfg.MaxTimeout:
		resp.ErrorCode = codeInvalidTransactionTimeout
		return resp
	}
	t, err := c.ensure(ctx, name)
	if err != nil {
		resp.ErrorCode = codeCoordinatorNotAvailable
		return resp
	}
	var fresh int64 = -1
	for {
		c.mu.Lock()
		v, code := decideInit(t.identity, req.ProducerID, req.ProducerEpoch)
		if v == initBump && t.epoch >= lastEpoch && fresh < 0 {
			c.mu.Unlock()
			if fresh, err = c.cfg.Backend.NewProducerID(ctx, name); err != nil {
				resp.ErrorCode = codeCoordinatorNotAvailable
				return resp
			}
			continue
		}
		switch v {
		case initRefuse:
			resp.ErrorCode = code
		case initFence:
			c.prepare(t, false)
			resp.ErrorCode = code
		case initBump:
			t.bump(fresh)
			fallthrough
		case initRepeat:
			t.status, t.hasEnded = Empty, false
			t.timeout = timeout
			resp.ProducerID, resp.ProducerEpoch = t.id, t.epoch
		}
		c.mu.Unlock()
		return resp
	}
}

// ensure gives the transactional id's state, made with its first producer id.
func (c *Coordinator) ensure(ctx context.Context, name string) (*transaction, error) {
	c.mu.Lock()
	t := c.txns[name]
	c.mu.Unlock()
	if t != nil {
		return t, nil
	}
	id, err := c.cfg.Backend.NewProducerID(ctx, name)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t = c.txns[name]; t == nil {
		t = &transaction{name: name, identity: identity{id: id, epoch: -1, prevID: -1}, parts: make(map[Partition]struct{})}
		c.txns[name] = t
	}
	return t, nil
}

// bump moves to the next epoch, or to a fresh producer id at the last one.
func (t *transaction) bump(fresh int64) {
	if t.epoch < lastEpoch {
		t.epoch++
		return
	}
	t.id, t.epoch = fresh, 0
}

// EndTxn answers key 26.
func (c *Coordinator) EndTxn(ctx context.Context, node int32, req *kmsg.EndTxnRequest) *kmsg.EndTxnResponse {
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if c.cfg.Backend.Coordinator(req.TransactionalID) != node {
		resp.ErrorCode = codeNotCoordinator
		return resp
	}
	var fresh int64 = -1
	for {
		c.mu.Lock()
		t := c.txns[req.TransactionalID]
		if t == nil {
			c.mu.Unlock()
			resp.ErrorCode = codeInvalidProducerIDMapping
			return resp
		}
		v, code := decideEnd(t.identity, req.ProducerID, req.ProducerEpoch, req.Commit)
		if (v == begin || v == bump) && t.epoch >= lastEpoch && fresh < 0 {
			c.mu.Unlock()
			var err error
			if fresh, err = c.cfg.Backend.NewProducerID(ctx, t.name); err != nil {
				resp.ErrorCode = codeCoordinatorNotAvailable
				return resp
			}
			continue
		}
		var wait chan struct{}
		switch v {
		case refuse:
			resp.ErrorCode = code
		case begin:
			c.prepareWith(t, req.Commit, fresh)
			if c.hold == nil {
				wait = t.done
			}
		case bump:
			t.ended()
			t.bump(fresh)
			t.status = CompleteAbort
		case already:
		}
		if resp.ErrorCode == codeNone {
			resp.ProducerID, resp.ProducerEpoch = t.id, t.epoch
		}
		c.mu.Unlock()
		if wait != nil {
			select {
			case <-wait:
			case <-ctx.Done():
			}
		}
		return resp
	}
}

// ended notes which transaction ended last; retries of its EndTxn name it.
func (t *transaction) ended() { t.prevID, t.endedAt, t.hasEnded = t.id, t.epoch, true }

// prepare ends the ongoing transaction where no new producer id can be had on
// the way (fencing, timeout); at the last epoch it is asked for with the
// markers. c.mu is held.
func (c *Coordinator) prepare(t *transaction, commit bool) { c.prepareWith(t, commit, -1) }

// prepareWith writes the decision: from here on the outcome is fixed. Markers
// carry the epoch after the transaction's, also where that one is never given
// out. c.mu is held.
func (c *Coordinator) prepareWith(t *transaction, commit bool, fresh int64) {
	t.timer.Stop()
	id, markerEpoch := t.id, t.epoch+1
	rollOver := t.epoch >= lastEpoch
	t.ended()
	if !rollOver || fresh >= 0 {
		t.bump(fresh)
	}
	t.status = PrepareAbort
	if commit {
		t.status = PrepareCommit
	}
	parts, offsets := t.parts, t.offsets
	t.parts, t.offsets = make(map[Partition]struct{}), nil
	t.done = make(chan struct{})
	done, hold := t.done, c.hold
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		ctx := c.cfg.Die
		if hold != nil {
			hold(ctx, t.name, commit)
		}
		for p := range parts {
			if p.Topic == c.cfg.StateTopic {
				continue // the engine is the state
			}
			if err := c.cfg.Backend.WriteMarker(ctx, p, id, markerEpoch, commit); err != nil {
				return // the cluster is going
			}
		}
		if commit && len(offsets) > 0 {
			if err := c.cfg.Backend.CommitOffsets(ctx, offsets); err != nil {
				c.cfg.Logger.Error("transaction's group offsets not committed", "id", t.name, "err", err)
			}
		}
		c.cfg.Backend.ShareOutcome(id, markerEpoch, commit)
		if rollOver && fresh < 0 {
			var err error
			if fresh, err = c.cfg.Backend.NewProducerID(ctx, t.name); err != nil {
				return
			}
			c.mu.Lock()
			t.bump(fresh)
			c.mu.Unlock()
		}
		c.mu.Lock()
		t.status = CompleteAbort
		if commit {
			t.status = CompleteCommit
		}
		close(done)
		c.mu.Unlock()
	}()
}

// addWait bounds how long a request that would begin a transaction waits for
// the markers of the one before, as Kafka's partition leaders do
// (add.partitions.to.txn.retry.backoff.max.ms).
const addWait = 100 * time.Millisecond

// add registers with the transaction, beginning it if need be, and answers the
// coordinator's code.
func (c *Coordinator) add(ctx context.Context, name string, id int64, epoch int16, register func(*transaction)) int16 {
	deadline := time.NewTimer(addWait)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		t := c.txns[name]
		if t == nil {
			c.mu.Unlock()
			return codeInvalidProducerIDMapping
		}
		code := decideAdd(t.identity, id, epoch)
		if code != codeConcurrentTransactions {
			if code == codeNone {
				c.start(t)
				register(t)
			}
			c.mu.Unlock()
			return code
		}
		done := t.done
		c.mu.Unlock()
		select {
		case <-done:
		case <-deadline.C:
			return code
		case <-ctx.Done():
			return code
		}
	}
}

// start begins the transaction and its timeout; c.mu is held.
func (c *Coordinator) start(t *transaction) {
	if t.status == Ongoing || c.closed {
		return
	}
	t.status, t.began, t.hasEnded = Ongoing, time.Now(), false
	began := t.began
	t.timer = time.AfterFunc(t.timeout, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.closed && t.status == Ongoing && t.began.Equal(began) {
			c.prepare(t, false)
		}
	})
}

// Produce registers the partitions of a transactional produce before it is
// forwarded (KIP-890: the partition leader does it). Leaders turn the
// coordinator's PRODUCER_FENCED into INVALID_PRODUCER_EPOCH.
func (c *Coordinator) Produce(ctx context.Context, name string, id int64, epoch int16, parts []Partition) int16 {
	code := c.add(ctx, name, id, epoch, func(t *transaction) {
		for _, p := range parts {
			t.parts[p] = struct{}{}
		}
	})
	if code == codeProducerFenced {
		return codeInvalidProducerEpoch
	}
	return code
}

// AddShareState registers partitions of the share state topic; see package
// share. While the transaction before is still completing it does not wait:
// the client is told CONCURRENT_TRANSACTIONS.
func (c *Coordinator) AddShareState(_ context.Context, name string, id int64, epoch int16, parts []int32) int16 {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.txns[name]
	if t == nil {
		return codeInvalidProducerIDMapping
	}
	code := decideAdd(t.identity, id, epoch)
	if code == codeNone {
		c.start(t)
		for _, p := range parts {
			t.parts[Partition{c.cfg.StateTopic, p}] = struct{}{}
		}
	}
	return code
}

// AddPartitionsToTxn answers key 24, versions 0 to 3.
func (c *Coordinator) AddPartitionsToTxn(ctx context.Context, node int32, req *kmsg.AddPartitionsToTxnRequest) *kmsg.AddPartitionsToTxnResponse {
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	code := codeNotCoordinator
	if c.cfg.Backend.Coordinator(req.TransactionalID) == node {
		code = c.add(ctx, req.TransactionalID, req.ProducerID, req.ProducerEpoch, func(t *transaction) {
			for _, rt := range req.Topics {
				for _, p := range rt.Partitions {
					t.parts[Partition{rt.Topic, p}] = struct{}{}
				}
			}
		})
	}
	for _, rt := range req.Topics {
		st := kmsg.NewAddPartitionsToTxnResponseTopic()
		st.Topic = rt.Topic
		for _, p := range rt.Partitions {
			sp := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			sp.Partition, sp.ErrorCode = p, code
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}

// AddOffsetsToTxn answers key 25.
func (c *Coordinator) AddOffsetsToTxn(ctx context.Context, node int32, req *kmsg.AddOffsetsToTxnRequest) *kmsg.AddOffsetsToTxnResponse {
	resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	if c.cfg.Backend.Coordinator(req.TransactionalID) != node {
		resp.ErrorCode = codeNotCoordinator
		return resp
	}
	resp.ErrorCode = c.add(ctx, req.TransactionalID, req.ProducerID, req.ProducerEpoch, func(*transaction) {})
	return resp
}

// TxnOffsetCommit answers key 28: the offsets are kept with the transaction and
// written when it commits. Group membership is not checked.
func (c *Coordinator) TxnOffsetCommit(ctx context.Context, req *kmsg.TxnOffsetCommitRequest) *kmsg.TxnOffsetCommitResponse {
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	code := c.add(ctx, req.TransactionalID, req.ProducerID, req.ProducerEpoch, func(t *transaction) {
		for _, rt := range req.Topics {
			for _, p := range rt.Partitions {
				t.offsets = append(t.offsets, Offset{Group: req.Group, MemberID: req.MemberID, Generation: req.Generation, Partition: Partition{rt.Topic, p.Partition}, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata})
			}
		}
	})
	for _, rt := range req.Topics {
		st := kmsg.NewTxnOffsetCommitResponseTopic()
		st.Topic = rt.Topic
		for _, p := range rt.Partitions {
			sp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			sp.Partition, sp.ErrorCode = p.Partition, code
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}

// View is one transactional id as it is, for audits.
type View struct {
	ID            string
	Status        Status
	ProducerID    int64
	ProducerEpoch int16
	Timeout       time.Duration
	Began         time.Time
	Partitions    []Partition
}

// Transactions gives all transactional ids, ordered.
func (c *Coordinator) Transactions() []View {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []View
	for _, t := range c.txns {
		v := View{ID: t.name, Status: t.status, ProducerID: t.id, ProducerEpoch: t.epoch, Timeout: t.timeout, Began: t.began}
		for p := range t.parts {
			v.Partitions = append(v.Partitions, p)
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b View) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return out
}

// DescribeTransactions answers key 65.
func (c *Coordinator) DescribeTransactions(node int32, req *kmsg.DescribeTransactionsRequest) *kmsg.DescribeTransactionsResponse {
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	views := c.Transactions()
	for _, name := range req.TransactionalIDs {
		out := kmsg.NewDescribeTransactionsResponseTransactionState()
		out.TransactionalID = name
		i := slices.IndexFunc(views, func(v View) bool { return v.ID == name })
		switch {
		case c.cfg.Backend.Coordinator(name) != node:
			out.ErrorCode = codeNotCoordinator
		case i < 0:
			out.ErrorCode = codeTransactionalIDNotFound
		default:
			v := views[i]
			out.State, out.TimeoutMillis = v.Status.String(), int32(v.Timeout.Milliseconds())
			out.ProducerID, out.ProducerEpoch, out.StartTimestamp = v.ProducerID, v.ProducerEpoch, -1
			if v.Status == Ongoing {
				out.StartTimestamp = v.Began.UnixMilli()
			}
			topics := make(map[string][]int32)
			for _, p := range v.Partitions {
				topics[p.Topic] = append(topics[p.Topic], p.Partition)
			}
			for topic, parts := range topics {
				t := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
				slices.Sort(parts)
				t.Topic, t.Partitions = topic, parts
				out.Topics = append(out.Topics, t)
			}
		}
		resp.TransactionStates = append(resp.TransactionStates, out)
	}
	return resp
}

// ListTransactions answers key 66 with the transactions of the node.
func (c *Coordinator) ListTransactions(node int32, req *kmsg.ListTransactionsRequest) *kmsg.ListTransactionsResponse {
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	for _, v := range c.Transactions() {
		switch {
		case c.cfg.Backend.Coordinator(v.ID) != node,
			len(req.StateFilters) > 0 && !slices.Contains(req.StateFilters, v.Status.String()),
			len(req.ProducerIDFilters) > 0 && !slices.Contains(req.ProducerIDFilters, v.ProducerID):
			continue
		}
		out := kmsg.NewListTransactionsResponseTransactionState()
		out.TransactionalID, out.ProducerID, out.TransactionState = v.ID, v.ProducerID, v.Status.String()
		resp.TransactionStates = append(resp.TransactionStates, out)
	}
	return resp
}
