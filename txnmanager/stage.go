package txnmanager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/probe"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What can pass before a transaction is ended.
var (
	errTxnTimeout   = errors.New("the transaction timeout passed, or would before the end")
	errStageTimeout = errors.New("the StageTimeout passed")
	errStrayed      = errors.New("the kgo client took a new producer epoch within the transaction")
)

const stageOp = "TxnShareAcknowledge"

// stage sends what is buffered to the leaders, one request after the other:
// each makes its broker register with the coordinator, which takes one at a
// time. It returns nil only if it is proven that every leader has staged every
// partition.
func (t *Transaction) stage(ctx context.Context) error {
	m := t.m
	if t.buffer.empty() {
		return nil
	}
	began := time.Now()
	defer func() { t.spent.stage = time.Since(began) }()
	if err := t.bind(ctx); err != nil {
		return err
	}
	ctx, cancel := t.stageBounds(ctx)
	defer cancel()
	staged, err := t.sendAll(ctx)
	if err == nil {
		err = t.confirm(ctx, staged)
	}
	if err != nil {
		m.leaders.forget()
	}
	return err
}

// sendAll gives what the leaders say to be staged: every partition once.
func (t *Transaction) sendAll(ctx context.Context) (staged []*stageRequest, _ error) {
	m := t.m
	queue, err := t.route(ctx)
	if err != nil {
		return nil, err
	}
	var pause backoff
	for len(queue) > 0 {
		r := queue[0]
		queue = queue[1:]
		moved, err := t.send(ctx, r)
		if err != nil {
			return nil, err
		}
		if done := r.without(moved); done != nil {
			staged = append(staged, done)
		}
		if len(moved) == 0 {
			continue
		}
		if !r.sent && pause.wait(ctx) != nil {
			return nil, t.staging(ctx, fmt.Errorf("broker %d cannot be reached", r.node))
		}
		if err := m.leaders.refresh(ctx, partitionsOf(moved)); err != nil {
			return nil, t.staging(ctx, err)
		}
		again, stuck := r.reroute(moved, r.sent, m.leaders.of)
		if stuck != nil {
			return nil, m.partitionRefused(kerr.NotLeaderForPartition.Code, r.member.GroupID(), stuck.tp)
		}
		queue = append(again, queue...)
	}
	return staged, nil
}

// bind gives a transaction that has not produced its producer id and epoch.
func (t *Transaction) bind(ctx context.Context) error {
	m := t.m
	if t.touched {
		return nil
	}
	if err := m.waitLanded(ctx, stageOp); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ident.known() {
		return m.failure(stageOp, sharetxn.ClassAbortable, errUninitialised)
	}
	t.ident, t.touched = m.ident, true
	t.startClock()
	// The epoch moves without the kgo client.
	m.current = false
	return nil
}

// stageBounds ends the context, with the reason as its cause, when the first of
// lock, transaction and StageTimeout leaves no time to end the transaction.
func (t *Transaction) stageBounds(ctx context.Context) (context.Context, context.CancelFunc) {
	cfg := t.m.cfg
	deadline, why := t.buffer.lockUntil.Add(-cfg.margin), sharetxn.ErrLockExpired
	if d := t.deadline.Add(-cfg.margin); d.Before(deadline) {
		deadline, why = d, errTxnTimeout
	}
	if d := time.Now().Add(cfg.stage); cfg.stage > 0 && d.Before(deadline) {
		deadline, why = d, errStageTimeout
	}
	return context.WithDeadlineCause(ctx, deadline, why)
}

// staging makes an error of staging that says why it was given up, and what the
// last attempt saw.
func (t *Transaction) staging(ctx context.Context, last error) error {
	if ctx.Err() != nil {
		last = fmt.Errorf("%w: %w", cause(ctx), last)
	}
	return t.m.failure(stageOp, sharetxn.ClassOf(last), last)
}

// route plans the requests, waiting for leaders where there are none.
func (t *Transaction) route(ctx context.Context) ([]*stageRequest, error) {
	m := t.m
	var pause backoff
	for {
		reqs, leaderless := plan(t.buffer.members, m.leaders.of)
		if len(leaderless) == 0 {
			return reqs, nil
		}
		err := m.leaders.refresh(ctx, t.partitions())
		if err == nil {
			if reqs, leaderless = plan(t.buffer.members, m.leaders.of); len(leaderless) == 0 {
				return reqs, nil
			}
			err = fmt.Errorf("no leader known for %v", leaderless[0])
		}
		if pause.wait(ctx) != nil {
			return nil, t.staging(ctx, err)
		}
	}
}

func (t *Transaction) partitions() (tps []acks.TopicIDPartition) {
	for _, b := range t.buffer.members {
		for tp := range b.set.Partitions() {
			tps = append(tps, tp)
		}
	}
	return tps
}

func partitionsOf(ps []part) (tps []acks.TopicIDPartition) {
	for _, p := range ps {
		tps = append(tps, p.tp)
	}
	return tps
}

// send repeats one request, byte for byte, until its leader has answered for
// all of it. It gives the partitions that have another leader, or all of them if
// the node cannot be reached and nothing was sent: then the leader may be
// another by now.
func (t *Transaction) send(ctx context.Context, r *stageRequest) (moved []part, _ error) {
	m := t.m
	var pause backoff
	for attempt := 1; ; attempt++ {
		resp, err := t.ask(ctx, r, attempt)
		if fatal := t.notProven(ctx, r, err); fatal != nil {
			return nil, fatal
		}
		if err == nil {
			var a stageAnswer
			a, err = r.read(resp)
			switch {
			case err != nil: // an answer that does not fit proves nothing
				return nil, m.failure(stageOp, sharetxn.ClassAbortable, err)
			case a.failed != nil:
				if a.failed.code == kerr.InvalidRecordState.Code {
					t.freed.add(r.member, a.failed.tp) // not all of them are ours
				}
				return nil, t.explained(ctx, r, m.partitionRefused(a.failed.code, r.member.GroupID(), a.failed.tp))
			case a.again:
				err = m.refused(rpcStage, a.code)
			case a.code != 0:
				if noMember(a.code) {
					t.outcast = r.member
				}
				return nil, t.explained(ctx, r, m.callRefused(r, a.code))
			default:
				return a.moved, nil
			}
		}
		if pause.wait(ctx) != nil {
			return nil, t.staging(ctx, err)
		}
		if !r.sent && attempt >= attemptsUnsent {
			return r.parts, nil
		}
	}
}

// attemptsUnsent is after how many attempts that could not be sent the leaders
// are asked for again.
const attemptsUnsent = 3

// notProven is the end of a staging whose broker does not speak it; nil for
// whatever else became of an attempt.
func (t *Transaction) notProven(ctx context.Context, r *stageRequest, err error) error {
	if !errors.Is(err, probe.ErrNotProven) || cutOff(err) {
		return nil
	}
	return t.m.failure(stageOp, sharetxn.ClassFatal, t.unsupported(ctx, r, fmt.Errorf("%w: %w", sharetxn.ErrUnsupported, err)))
}

// cutOff tells of a proof that failed for want of a connection: one that was
// lost took the broker's proof with it, and the new one may be lost as well, or who
// asks for it may be told to stop. That denies nothing that was proven before.
func cutOff(err error) bool {
	return kgo.IsRetryableBrokerErr(err) || unsent(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// ask sends the request once to a broker that has proven that it speaks it.
func (t *Transaction) ask(ctx context.Context, r *stageRequest, attempt int) (*wire.Response, error) {
	m := t.m
	profile, err := m.core.Prove(ctx, r.node)
	if err != nil {
		return nil, err
	}
	r.profile = profile
	if ctx.Err() != nil { // too late to begin, though kgo would still write it
		return nil, cause(ctx)
	}
	began := time.Now()
	kresp, err := m.client.Broker(int(r.node)).Request(ctx, r.build(profile, m.id, t.ident))
	if probe.Behind(err) {
		err = errors.Join(err, m.reconnect())
	}
	resp, ok := kresp.(*wire.Response)
	if err == nil && !ok {
		err = fmt.Errorf("answer is a %T", kresp)
	}
	arrived := !unsent(err)
	r.sent = r.sent || arrived
	if r.contradicts {
		return resp, err
	}
	if profile.AbortFrees() && arrived && (err != nil || !refusedWhole(resp.ErrorCode)) {
		t.freed.mark(r)
	}
	ranges, offsets := r.size()
	m.onStage(ctx, sharetxn.Stage{
		TransactionalID: m.id, Broker: r.node, Ranges: ranges, Offsets: offsets, Attempt: attempt, Took: time.Since(began),
		Err: m.stageError(err, resp),
	})
	return resp, err
}

// noMember tells the codes with which a group denies who stages: it is none of its
// members, or is behind.
func noMember(code int16) bool {
	switch code {
	case kerr.UnknownMemberID.Code, kerr.StaleMemberEpoch.Code, kerr.FencedMemberEpoch.Code, kerr.GroupIDNotFound.Code:
		return true
	}
	return false
}

// refusedWhole tells of an answer that means that nothing was staged.
func refusedWhole(code int16) bool { return code != 0 && code != kerr.UnknownServerError.Code }

// stageError is what a hook is told of an attempt.
func (m *TransactionManager) stageError(err error, resp *wire.Response) error {
	switch {
	case err != nil:
		return m.failure(stageOp, sharetxn.ClassAbortable, err)
	case resp.ErrorCode != 0:
		return m.refused(rpcStage, resp.ErrorCode)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return m.partitionRefused(p.ErrorCode, "", acks.TopicIDPartition{TopicID: t.TopicID, Partition: p.Partition})
			}
		}
	}
	return nil
}

// explained adds to a refusal why the broker does not speak it any more, if that
// is what it says: a feature was lowered since the proof.
func (t *Transaction) explained(ctx context.Context, r *stageRequest, refused *sharetxn.Error) error {
	if refused.Code == kerr.UnsupportedVersion.Code {
		refused.Err = t.unsupported(ctx, r, refused.Err)
	}
	return refused
}

// unsupported takes back what rests on the broker's proof, so that the next
// transaction begins with new ones, and says what every broker offers, or else
// err.
func (t *Transaction) unsupported(ctx context.Context, r *stageRequest, err error) error {
	t.m.core.Deny(r.node)
	if caps, e := t.m.cluster.Capabilities(ctx); e == nil && !caps.SupportsStaging() {
		return &sharetxn.UnsupportedError{Found: caps}
	}
	return err
}
