package txn

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Partition is a partition that takes part in a transaction.
type Partition struct {
	Topic     string
	Partition int32
}

// Key names one transaction: who writes in it.
type Key struct {
	ProducerID    int64
	ProducerEpoch int16
}

// Backend is what the coordinator needs of the cluster. Its methods may do I/O
// and are never called under a lock.
type Backend interface {
	// NewProducerID makes the logs know a producer id, never given before.
	NewProducerID(ctx context.Context, txnID string) (int64, error)
	// WriteMarker writes a transaction marker to the partition's leader and
	// tries until it could, or ctx ends.
	WriteMarker(ctx context.Context, p Partition, producerID int64, epoch int16, commit bool) error
	// LostMarker tells that the end of a transaction will not be written to the
	// partition: what it wrote there stays open.
	LostMarker(p Partition, of Key)
	// StageOffsets checks group offsets and keeps them until EndOffsets of the
	// same key; it answers as the group's coordinator does.
	StageOffsets(ctx context.Context, node int32, key Key, req *kmsg.TxnOffsetCommitRequest) (*kmsg.TxnOffsetCommitResponse, error)
	// EndOffsets applies what was staged under the key, or drops it.
	EndOffsets(ctx context.Context, key Key, commit bool) error
	// Staged gives the partitions of which the producer has records staged at an
	// epoch below markerEpoch, in order. From then on none is staged there.
	Staged(producerID int64, markerEpoch int16) []Partition
	// Resolve ends what Staged names of one partition.
	Resolve(p Partition, producerID int64, markerEpoch int16, commit bool)
	// ShareOutcome is Resolve for all that is left, of topics that are gone.
	ShareOutcome(producerID int64, markerEpoch int16, commit bool)
	// Cut is nil where the id's coordinator and the partition's leader reach each
	// other; else it is closed when that may have changed.
	Cut(txnID string, p Partition) <-chan struct{}
	// Exists tells whether there is such a partition.
	Exists(p Partition) bool
	// Coordinator is the node that coordinates the id.
	Coordinator(txnID string) (node int32)
	// Durable returns when all that was changed and kept before survives the
	// process.
	Durable() error
}

// Config of a Coordinator.
type Config struct {
	Backend    Backend
	MaxTimeout time.Duration // transaction.max.timeout.ms; default 15 min
	StateTopic string        // name under which staged acknowledgements are listed
	Logger     *slog.Logger
	Die        context.Context // ends with the cluster
	// Observe is told of each decision, under the coordinator's lock: it must be
	// quick and must not call back. Nil: nobody is.
	Observe func(Event)
	// Initialised is told of each InitProducerId that worked, in the same way.
	Initialised func(Initialised)
	// Keep is given each transactional id as it now is, to be kept; like Observe
	// under the lock. Nil: nothing is kept.
	Keep func(Image)
}

// Coordinator is safe for concurrent use.
type Coordinator struct {
	cfg Config

	mu     sync.Mutex
	txns   map[string]*transaction
	treat  func(Marker) Treatment
	closed bool
	wg     sync.WaitGroup
}

// transaction is the state of one transactional id.
type transaction struct {
	identity
	name    string
	writer  Key // of the transaction under way
	timeout time.Duration
	parts   map[Partition]struct{}
	writes  sync.WaitGroup // produces on their way to the log
	offsets bool           // group offsets were staged
	began   time.Time
	timer   *time.Timer
	done    chan struct{} // closed when the markers of the present end are written
	held    chan struct{} // closed when one of them has to wait

	byProducer bool // who ended it: Event.ByProducer
}

// New makes a Coordinator without transactions.
func New(cfg Config) *Coordinator {
	if cfg.MaxTimeout == 0 {
		cfg.MaxTimeout = 15 * time.Minute
	}
	return &Coordinator{cfg: cfg, txns: make(map[string]*transaction)}
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
			c.abort(t)
			resp.ErrorCode = code
		case initBump:
			t.bump(fresh)
			t.hasPrev = req.ProducerID >= 0
			fallthrough
		case initRepeat:
			t.status, t.timeout = Empty, timeout
			resp.ProducerID, resp.ProducerEpoch = t.id, t.epoch
			if c.cfg.Initialised != nil {
				c.cfg.Initialised(Initialised{TransactionalID: t.name, Key: Key{t.id, t.epoch}})
			}
			c.keep(t)
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
		t = &transaction{name: name, identity: identity{id: id, epoch: -1, prevID: -1, prevEpoch: -1}, parts: make(map[Partition]struct{})}
		c.txns[name] = t
	}
	return t, nil
}

// bump moves to the next epoch, or to a fresh producer id at the last one.
func (t *transaction) bump(fresh int64) {
	t.prevID, t.prevEpoch, t.hasPrev = t.id, t.epoch, true
	if t.epoch < lastEpoch {
		t.epoch++
		return
	}
	t.id, t.epoch = fresh, 0
}

// EndTxn answers key 26, version 5: older ones name no epoch of their own, so
// that a retry cannot be told from the next transaction's end.
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
		var done, held chan struct{}
		switch v {
		case refuse:
			resp.ErrorCode = code
		case begin:
			c.prepare(t, req.Commit, fresh, true)
			done, held = t.done, t.held
		case bump:
			t.bump(fresh)
			t.status, t.began = CompleteAbort, time.Now()
			c.keep(t)
		case already:
		}
		if resp.ErrorCode == codeNone {
			resp.ProducerID, resp.ProducerEpoch = t.id, t.epoch
		}
		c.mu.Unlock()
		if done != nil {
			select {
			case <-done:
			case <-held:
			case <-ctx.Done():
			}
		}
		return resp
	}
}

// abort ends the ongoing transaction without its producer (fencing, timeout).
// c.mu is held.
func (c *Coordinator) abort(t *transaction) { c.prepare(t, false, -1, false) }

// prepare writes the decision: from here on the outcome is fixed. Markers carry
// the epoch after the transaction's, also where that one is never given out.
// At the last epoch the producer id changes: to fresh, or, where that is -1
// because no I/O could be done, to one that is asked for with the markers. c.mu
// is held.
func (c *Coordinator) prepare(t *transaction, commit bool, fresh int64, byProducer bool) {
	t.timer.Stop()
	if t.epoch < lastEpoch || fresh >= 0 {
		t.bump(fresh)
	}
	t.status = PrepareAbort
	if commit {
		t.status = PrepareCommit
	}
	t.byProducer = byProducer
	c.tell(t.decision(false))
	c.keep(t)
	c.finish(t)
}

// finish carries out what prepare decided; c.mu is held.
func (c *Coordinator) finish(t *transaction) {
	t.done, t.held = make(chan struct{}), make(chan struct{})
	commit, key, treat, waits := t.status == PrepareCommit, t.writer, c.treat, t.held
	late := key == Key{t.id, t.epoch} // there was no fresh id at the last epoch
	decision := t.decision(true)
	held := sync.OnceFunc(func() { close(waits) })
	c.wg.Go(func() {
		ctx := c.cfg.Die
		fresh := int64(-1)
		err := c.cfg.Backend.Durable()
		if err == nil {
			err = c.apply(ctx, t, key, commit, treat, held)
		}
		if err == nil {
			err = c.cfg.Backend.Durable() // the end of it may not come before what it did
		}
		if err == nil && late {
			fresh, err = c.cfg.Backend.NewProducerID(ctx, t.name)
		}
		if err != nil {
			// Only the cluster's end is an error here: the transaction stays as it is.
			c.cfg.Logger.Info("transaction not completed", "id", t.name, "err", err)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if late {
			t.bump(fresh)
		}
		t.status = CompleteAbort
		if commit {
			t.status = CompleteCommit
		}
		t.parts, t.offsets = make(map[Partition]struct{}), false
		c.tell(decision)
		c.keep(t)
		close(t.done)
	})
}

// decision is the event of the end of a transaction that is prepared.
func (t *transaction) decision(applied bool) Event {
	return Event{
		TransactionalID: t.name, Writer: t.writer, Commit: t.status == PrepareCommit, ByProducer: t.byProducer,
		Applied: applied, Partitions: partitions(t.parts),
	}
}

// tell tells whoever observes; c.mu is held.
func (c *Coordinator) tell(e Event) {
	if c.cfg.Observe != nil {
		c.cfg.Observe(e)
	}
}

// partitions gives the partitions in order.
func partitions(set map[Partition]struct{}) []Partition {
	return slices.SortedFunc(maps.Keys(set), func(a, b Partition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
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
				c.keep(t)
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
	t.status, t.began, t.hasPrev = Ongoing, time.Now(), false
	t.writer = Key{t.id, t.epoch}
	c.watch(t)
}

// watch aborts the transaction when its time is up; c.mu is held.
func (c *Coordinator) watch(t *transaction) {
	began := t.began
	t.timer = time.AfterFunc(time.Until(began.Add(t.timeout)), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.closed && t.status == Ongoing && t.began.Equal(began) {
			c.abort(t)
		}
	})
}

// Produce registers the partitions of a transactional produce before it is
// forwarded (KIP-890: the partition leader does it). Where the code is 0 the
// caller calls done when the log has the produce or refused it: markers come
// after it, since kfake does not fence by markers. Leaders turn the
// coordinator's PRODUCER_FENCED into INVALID_PRODUCER_EPOCH, and where they do
// not reach it they answer NOT_ENOUGH_REPLICAS.
func (c *Coordinator) Produce(ctx context.Context, name string, id int64, epoch int16, parts []Partition) (done func(), code int16) {
	if c.cutOff(name, Key{id, epoch}, parts) {
		return nil, codeNotEnoughReplicas
	}
	code = c.add(ctx, name, id, epoch, func(t *transaction) {
		for _, p := range parts {
			t.parts[p] = struct{}{}
		}
		t.writes.Add(1)
		done = t.writes.Done
	})
	if code == codeProducerFenced {
		code = codeInvalidProducerEpoch
	}
	return done, code
}

// cutOff tells whether a leader must ask the coordinator and cannot: what is
// part of the transaction already it does not ask about again (KIP-890).
func (c *Coordinator) cutOff(name string, writer Key, parts []Partition) bool {
	parts = slices.DeleteFunc(slices.Clone(parts), func(p Partition) bool { return c.cfg.Backend.Cut(name, p) == nil })
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.txns[name]
	return slices.ContainsFunc(parts, func(p Partition) bool {
		if t == nil || t.status != Ongoing || t.writer != writer {
			return true
		}
		_, known := t.parts[p]
		return !known
	})
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
		c.keep(t)
	}
	return code
}

// AddPartitionsToTxn answers key 24, versions 0 to 3: all partitions are added
// or, where one does not exist, none.
func (c *Coordinator) AddPartitionsToTxn(ctx context.Context, node int32, req *kmsg.AddPartitionsToTxnRequest) *kmsg.AddPartitionsToTxnResponse {
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	var add []Partition
	missing := make(map[Partition]bool)
	for _, rt := range req.Topics {
		for _, n := range rt.Partitions {
			p := Partition{rt.Topic, n}
			if add = append(add, p); !c.cfg.Backend.Exists(p) {
				missing[p] = true
			}
		}
	}
	code := codeNotCoordinator
	switch {
	case c.cfg.Backend.Coordinator(req.TransactionalID) != node:
	case len(missing) > 0:
		code = codeOperationNotAttempted
	default:
		code = c.add(ctx, req.TransactionalID, req.ProducerID, req.ProducerEpoch, func(t *transaction) {
			for _, p := range add {
				t.parts[p] = struct{}{}
			}
		})
	}
	for _, rt := range req.Topics {
		st := kmsg.NewAddPartitionsToTxnResponseTopic()
		st.Topic = rt.Topic
		for _, n := range rt.Partitions {
			sp := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			sp.Partition, sp.ErrorCode = n, code
			if code == codeOperationNotAttempted && missing[Partition{rt.Topic, n}] {
				sp.ErrorCode = codeUnknownTopicOrPartition
			}
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

// TxnOffsetCommit answers key 28: the group's coordinator checks the member and
// keeps the offsets until the transaction ends. Like partition leaders it turns
// the coordinator's PRODUCER_FENCED into INVALID_PRODUCER_EPOCH.
func (c *Coordinator) TxnOffsetCommit(ctx context.Context, node int32, req *kmsg.TxnOffsetCommitRequest) (*kmsg.TxnOffsetCommitResponse, error) {
	code := codeNotCoordinator
	if c.cfg.Backend.Coordinator(req.Group) == node {
		code = c.add(ctx, req.TransactionalID, req.ProducerID, req.ProducerEpoch, func(t *transaction) { t.offsets = true })
	}
	if code == codeProducerFenced {
		code = codeInvalidProducerEpoch
	}
	if code == codeNone {
		return c.cfg.Backend.StageOffsets(ctx, node, Key{req.ProducerID, req.ProducerEpoch}, req)
	}
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
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
	return resp, nil
}

// View is one transactional id as it is, for audits.
type View struct {
	ID            string
	Status        Status
	ProducerID    int64
	ProducerEpoch int16
	Timeout       time.Duration
	Began         time.Time
	Writer        Key         // of the transaction in Partitions
	Partitions    []Partition // of the transaction that is ongoing or ending
}

// Transactions gives all transactional ids, ordered.
func (c *Coordinator) Transactions() []View {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []View
	for _, t := range c.txns {
		v := View{ID: t.name, Status: t.status, ProducerID: t.id, ProducerEpoch: t.epoch, Timeout: t.timeout, Began: t.began, Writer: t.writer, Partitions: partitions(t.parts)}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b View) int { return strings.Compare(a.ID, b.ID) })
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
			if v.Status != Empty { // of the last one too
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
	for _, state := range req.StateFilters {
		if !known(state) {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, state)
		}
	}
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
