package share

import (
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// put is a batch of a fake log.
type put struct {
	first   int64
	n       int64
	pid     int64
	txn     bool
	control bool
	value   int // bytes in a record's value
}

// batchBytes writes a real record batch.
func batchBytes(b put) []byte {
	var records []byte
	for i := range b.n {
		r := kmsg.Record{OffsetDelta: int32(i), Key: []byte{0, 0, 0, 1}, Value: make([]byte, b.value)}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // a length of zero took one byte
		records = r.AppendTo(records)
	}
	rb := kmsg.RecordBatch{
		FirstOffset: b.first, Magic: 2, LastOffsetDelta: int32(b.n - 1), ProducerID: b.pid, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: int32(b.n), Records: records,
	}
	if b.txn {
		rb.Attributes |= 0x10
	}
	if b.control {
		rb.Attributes |= 0x20
	}
	rb.Length = int32(len(rb.AppendTo(nil)) - 12)
	raw := rb.AppendTo(nil)
	rb.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return rb.AppendTo(nil)
}

// chunkOf is a piece of log made of these batches.
func chunkOf(batches ...put) Chunk {
	var c Chunk
	for _, b := range batches {
		c.Records = append(c.Records, batchBytes(b)...)
		c.Bounds.End = b.first + b.n
	}
	c.Bounds.LastStable = c.Bounds.End
	return c
}

type fakePartition struct {
	Bounds
	leader, epoch int32
	batches       []put
	bytes         [][]byte
	aborted       []AbortedTxn
	open          map[int64]int64 // producer -> first offset of its transaction
}

type fakeTopic struct {
	Topic
	parts []*fakePartition
}

// fakeLog is a Log in memory.
type fakeLog struct {
	mu     sync.Mutex
	topics map[string]*fakeTopic
	nodes  int32
	fail   error  // of Bounds and Read
	onRead func() // called after a read, without the lock
	read   int64  // bytes
}

func newFakeLog(nodes int32) *fakeLog {
	return &fakeLog{topics: make(map[string]*fakeTopic), nodes: nodes}
}

func (l *fakeLog) create(name string, partitions int32) [16]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &fakeTopic{Topic: Topic{ID: [16]byte{byte(len(l.topics) + 1)}, Name: name, Partitions: partitions}}
	for p := range partitions {
		t.parts = append(t.parts, &fakePartition{leader: p % l.nodes, epoch: 5, open: make(map[int64]int64)})
	}
	l.topics[name] = t
	return t.ID
}

func (l *fakeLog) with(topic string, part int32, fn func(*fakePartition)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn(l.topics[topic].parts[part])
}

func (p *fakePartition) add(b put) {
	b.first = p.End
	p.batches = append(p.batches, b)
	p.bytes = append(p.bytes, batchBytes(b))
	p.End += b.n
	if b.txn && !b.control {
		if _, ok := p.open[b.pid]; !ok {
			p.open[b.pid] = b.first
		}
	}
	p.stable()
}

func (p *fakePartition) stable() {
	p.LastStable = p.End
	for _, first := range p.open {
		p.LastStable = min(p.LastStable, first)
	}
}

// add appends one batch of n records.
func (l *fakeLog) add(topic string, part int32, n int64) {
	l.with(topic, part, func(p *fakePartition) { p.add(put{n: n, pid: -1}) })
}

func (l *fakeLog) addTxn(topic string, part int32, pid, n int64) {
	l.with(topic, part, func(p *fakePartition) { p.add(put{n: n, pid: pid, txn: true}) })
}

func (l *fakeLog) endTxn(topic string, part int32, pid int64, commit bool) {
	l.with(topic, part, func(p *fakePartition) {
		if !commit {
			p.aborted = append(p.aborted, AbortedTxn{ProducerID: pid, FirstOffset: p.open[pid]})
		}
		delete(p.open, pid)
		p.add(put{n: 1, pid: pid, txn: true, control: true})
	})
}

func (l *fakeLog) Topic(id [16]byte) (Topic, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.topics {
		if t.ID == id {
			return t.Topic, true
		}
	}
	return Topic{}, false
}

func (l *fakeLog) TopicByName(name string) (Topic, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok := l.topics[name]
	if !ok {
		return Topic{}, false
	}
	return t.Topic, true
}

func (l *fakeLog) Leader(topic string, part int32) (int32, int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.topics[topic]; t != nil && part >= 0 && part < t.Partitions {
		return t.parts[part].leader, t.parts[part].epoch
	}
	return -1, -1
}

func (l *fakeLog) Node(node int32) (string, int32, *string, bool) {
	return "host", 9000 + node, nil, node >= 0 && node < l.nodes
}

func (l *fakeLog) GroupCoordinator(string) int32 { return 0 }

func (l *fakeLog) GroupTaken(group string) bool { return group == "classic" }

var errFake = errors.New("no such fake partition")

func (l *fakeLog) part(topic string, part int32) (*fakePartition, error) {
	if l.fail != nil {
		return nil, l.fail
	}
	t := l.topics[topic]
	if t == nil || int(part) >= len(t.parts) {
		return nil, errFake
	}
	return t.parts[part], nil
}

func (l *fakeLog) Bounds(_ context.Context, topic string, part int32) (Bounds, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := l.part(topic, part)
	if err != nil {
		return Bounds{}, err
	}
	return p.Bounds, nil
}

func (l *fakeLog) Read(_ context.Context, topic string, part int32, offset int64, maxBytes int32, committed bool) (Chunk, error) {
	l.mu.Lock()
	defer func() {
		hook := l.onRead
		l.mu.Unlock()
		if hook != nil {
			hook()
		}
	}()
	p, err := l.part(topic, part)
	if err != nil {
		return Chunk{}, err
	}
	c := Chunk{Bounds: p.Bounds}
	from := max(offset, p.Start)
	i, _ := slices.BinarySearchFunc(p.batches, from, func(b put, o int64) int {
		if b.first+b.n <= o {
			return -1
		}
		return 1
	})
	for ; i < len(p.batches); i++ {
		raw := p.bytes[i]
		if len(c.Records) > 0 && len(c.Records)+len(raw) > int(maxBytes) {
			break
		}
		c.Records = append(c.Records, raw...)
	}
	l.read += int64(len(c.Records))
	if committed {
		c.Aborted = slices.Clone(p.aborted)
	}
	return c, nil
}

// OffsetForTime takes the time's minute as an offset.
func (l *fakeLog) OffsetForTime(_ context.Context, _ string, _ int32, at time.Time) (int64, error) {
	return int64(at.Minute()), nil
}

// fakeTxns answers code and says what it was asked.
type fakeTxns struct {
	mu    sync.Mutex
	code  int16
	calls []string
	parts [][]int32
	hook  func() // before it answers
}

func (f *fakeTxns) AddShareState(_ context.Context, txnID string, _ int64, _ int16, parts []int32) int16 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, txnID)
	f.parts = append(f.parts, parts)
	if f.hook != nil {
		f.hook()
	}
	return f.code
}

// rig is an engine with topic "in" (one partition, led by node 0) and group "g"
// that starts at the earliest offset.
type rig struct {
	t    testing.TB
	ctx  context.Context
	log  *fakeLog
	txns *fakeTxns
	e    *Engine
	in   [16]byte
}

func newRig(ctx context.Context, t testing.TB, configs map[string]string, with ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, ctx: ctx, log: newFakeLog(2), txns: &fakeTxns{}}
	r.in = r.log.create("in", 1)
	set := map[string]string{configReset: "earliest"}
	for k, v := range configs {
		set[k] = v
	}
	cfg := Config{Log: r.log, Txns: r.txns, Staging: true, MinLockDuration: time.Millisecond, GroupConfigs: map[string]map[string]string{"g": set}}
	for _, fn := range with {
		fn(&cfg)
	}
	r.e = New(cfg)
	t.Cleanup(r.e.Close)
	return r
}

// add appends one batch of n records to partition 0 of "in".
func (r *rig) add(n int64) {
	r.log.add("in", 0, n)
	r.e.Appended()
}

// user is a member as its client sees itself: one connection, one session.
type user struct {
	*rig
	id    string
	conn  Conn
	epoch int32 // of the session
	group string
}

func (r *rig) user(id string) *user {
	return &user{rig: r, id: id, group: "g", conn: Conn{ID: uint64(len(id)*1000) + uint64(id[0]), Node: 0, ClientID: "client-" + id, Host: "/127.0.0.1"}}
}

// ask is a ShareFetch for partition 0 of "in" that does not wait.
func (u *user) ask(change ...func(*kmsg.ShareFetchRequest)) *kmsg.ShareFetchRequest {
	req := kmsg.NewPtrShareFetchRequest()
	req.Version = 2
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &u.group, &u.id, u.epoch
	req.MinBytes, req.MaxBytes, req.MaxRecords, req.BatchSize = 1, 1<<20, 500, 500
	t := kmsg.NewShareFetchRequestTopic()
	t.TopicID = u.in
	t.Partitions = append(t.Partitions, kmsg.NewShareFetchRequestTopicPartition())
	req.Topics = append(req.Topics, t)
	for _, fn := range change {
		fn(req)
	}
	return req
}

func (u *user) send(req *kmsg.ShareFetchRequest) *kmsg.ShareFetchResponse {
	u.t.Helper()
	resp, ok := u.e.Handle(u.ctx, u.conn, req).(*kmsg.ShareFetchResponse)
	if !ok {
		u.t.Fatal("no ShareFetch answer")
	}
	if resp.ErrorCode == codeNone {
		u.epoch = nextEpoch(req.ShareSessionEpoch)
	}
	return resp
}

// fetch sends an ask and wants it answered without a top-level error.
func (u *user) fetch(change ...func(*kmsg.ShareFetchRequest)) *kmsg.ShareFetchResponse {
	u.t.Helper()
	resp := u.send(u.ask(change...))
	if resp.ErrorCode != codeNone {
		u.t.Fatalf("%s: fetch answered %d", u.id, resp.ErrorCode)
	}
	return resp
}

func exactly(n int32) func(*kmsg.ShareFetchRequest) {
	return func(r *kmsg.ShareFetchRequest) { r.MaxRecords, r.ShareAcquireMode = n, recordLimit }
}

func waiting(d time.Duration) func(*kmsg.ShareFetchRequest) {
	return func(r *kmsg.ShareFetchRequest) { r.MaxWaitMillis = int32(d.Milliseconds()) }
}

// got is what an answer acquired: first, last, count of each range.
func got(resp *kmsg.ShareFetchResponse) (out [][3]int64) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			for _, a := range p.AcquiredRecords {
				out = append(out, [3]int64{a.FirstOffset, a.LastOffset, int64(a.DeliveryCount)})
			}
		}
	}
	return out
}

func wantGot(t testing.TB, what string, resp *kmsg.ShareFetchResponse, want ...[3]int64) {
	t.Helper()
	if g := got(resp); !slices.Equal(g, want) {
		t.Fatalf("%s: acquired %v, want %v", what, g, want)
	}
}

// part is the only partition in an answer.
func part(t testing.TB, resp *kmsg.ShareFetchResponse) kmsg.ShareFetchResponseTopicPartition {
	t.Helper()
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("answer has topics %+v, want one partition", resp.Topics)
	}
	return resp.Topics[0].Partitions[0]
}

func batch(first, last int64, types ...acks.Type) acks.AcknowledgementBatch {
	return acks.AcknowledgementBatch{FirstOffset: first, LastOffset: last, Types: types}
}

// ackReq is a ShareAcknowledge for partition 0 of "in".
func (u *user) ackReq(batches ...acks.AcknowledgementBatch) *kmsg.ShareAcknowledgeRequest {
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.Version = 2
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &u.group, &u.id, u.epoch
	t := kmsg.NewShareAcknowledgeRequestTopic()
	t.TopicID = u.in
	p := kmsg.NewShareAcknowledgeRequestTopicPartition()
	for _, b := range batches {
		w := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
		w.FirstOffset, w.LastOffset = b.FirstOffset, b.LastOffset
		for _, ty := range b.Types {
			w.AcknowledgeTypes = append(w.AcknowledgeTypes, int8(ty))
		}
		p.AcknowledgementBatches = append(p.AcknowledgementBatches, w)
	}
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (u *user) sendAck(req *kmsg.ShareAcknowledgeRequest) *kmsg.ShareAcknowledgeResponse {
	u.t.Helper()
	resp, ok := u.e.Handle(u.ctx, u.conn, req).(*kmsg.ShareAcknowledgeResponse)
	if !ok {
		u.t.Fatal("no ShareAcknowledge answer")
	}
	if resp.ErrorCode == codeNone {
		u.epoch = nextEpoch(req.ShareSessionEpoch)
	}
	return resp
}

// ack acknowledges and gives the partition's code.
func (u *user) ack(batches ...acks.AcknowledgementBatch) int16 {
	u.t.Helper()
	resp := u.sendAck(u.ackReq(batches...))
	if resp.ErrorCode != codeNone {
		u.t.Fatalf("%s: acknowledge answered %d", u.id, resp.ErrorCode)
	}
	return resp.Topics[0].Partitions[0].ErrorCode
}

func (u *user) mustAck(batches ...acks.AcknowledgementBatch) {
	u.t.Helper()
	if code := u.ack(batches...); code != codeNone {
		u.t.Fatalf("%s: acknowledgement answered %d", u.id, code)
	}
}

// closeSession closes the session as a client does.
func (u *user) closeSession() {
	u.t.Helper()
	req := u.ackReq()
	req.ShareSessionEpoch, req.Topics = finalEpoch, nil
	if resp := u.sendAck(req); resp.ErrorCode != codeNone {
		u.t.Fatalf("%s: close answered %d", u.id, resp.ErrorCode)
	}
}

func (u *user) heartbeat(epoch int32, topics ...string) *kmsg.ShareGroupHeartbeatResponse {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.Version = 1
	req.GroupID, req.MemberID, req.MemberEpoch = u.group, u.id, epoch
	if len(topics) > 0 {
		req.SubscribedTopicNames = topics
	}
	return u.e.Handle(u.ctx, u.conn, req).(*kmsg.ShareGroupHeartbeatResponse)
}

// join makes the user a member of the group and gives its epoch.
func (u *user) join() int32 {
	u.t.Helper()
	resp := u.heartbeat(0, "in")
	if resp.ErrorCode != codeNone {
		u.t.Fatalf("%s: join answered %d", u.id, resp.ErrorCode)
	}
	return resp.MemberEpoch
}

// staging is a stage request for partition 0 of "in" as producer 7, epoch 3.
func (u *user) staging(memberEpoch int32, batches ...acks.AcknowledgementBatch) *wire.Request {
	txn := "txn"
	return &wire.Request{
		Profile: wire.Draft95, TransactionalID: &txn, GroupID: u.group, ProducerID: 7, ProducerEpoch: 3, MemberID: u.id, MemberEpoch: memberEpoch,
		Topics: []wire.RequestTopic{{TopicID: u.in, Partitions: []wire.RequestPartition{{Batches: batches}}}},
	}
}

// stage sends it and gives the partition's code; a top-level error fails.
func (u *user) stage(req *wire.Request) int16 {
	u.t.Helper()
	resp := u.e.Stage(u.ctx, u.conn, req)
	if resp.ErrorCode != codeNone {
		u.t.Fatalf("%s: stage answered %d", u.id, resp.ErrorCode)
	}
	return resp.Topics[0].Partitions[0].ErrorCode
}

// state is the state of an offset of partition 0 of "in" in group "g".
func (r *rig) state(offset int64) (State, int16) {
	r.t.Helper()
	s, _, count, ok := r.e.StateOf("g", r.in, 0, offset)
	if !ok {
		r.t.Fatalf("offset %d is outside of the window", offset)
	}
	return s, count
}

func (r *rig) wantState(what string, offset int64, state State, count int16) {
	r.t.Helper()
	if s, n := r.state(offset); s != state || n != count {
		r.t.Fatalf("%s: offset %d is %v after %d deliveries, want %v after %d", what, offset, s, n, state, count)
	}
}

// window is SPSO and SPEO + 1.
func (r *rig) wantWindow(what string, start, end int64) {
	r.t.Helper()
	ps := r.e.PartitionStates("g")
	if len(ps) != 1 || ps[0].Start != start || ps[0].End != end {
		r.t.Fatalf("%s: partitions %+v, want window [%d, %d)", what, ps, start, end)
	}
}
