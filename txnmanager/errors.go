package txnmanager

import (
	"context"
	"errors"
	"fmt"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kerr"
)

// refused is an error code of a broker with what it means.
func (m *TransactionManager) refused(r rpc, code int16) *sharetxn.Error {
	return refusedOf(m.id, r, code)
}

func refusedOf(id string, r rpc, code int16) *sharetxn.Error {
	v := classify(r, code)
	e := &sharetxn.Error{Op: r.String(), Class: classOf(v), Code: code, FromBroker: true, TransactionalID: id}
	switch v {
	case vFenced:
		e.Err = sharetxn.ErrFenced
	case vUnsupported:
		e.Err = sharetxn.ErrUnsupported
	default:
		e.Err = codeError(code)
	}
	return e
}

// codeError keeps a code that kerr does not know.
func codeError(code int16) error {
	if ke, ok := errors.AsType[*kerr.Error](kerr.ErrorForCode(code)); ok && ke.Code == code {
		return ke
	}
	return fmt.Errorf("error code %d, unknown to this client", code)
}

func classOf(v verdict) sharetxn.Class {
	switch v {
	case vFenced, vRefused, vUnsupported:
		return sharetxn.ClassFatal
	case vOK, vAgain, vElsewhere, vMoved, vAbort, vNotCommitted, vCommitted, vUnclear, verdicts:
	}
	return sharetxn.ClassAbortable
}

// failure is an error of our own, or of the way to a broker.
func (m *TransactionManager) failure(op string, class sharetxn.Class, err error) *sharetxn.Error {
	return failureOf(m.id, op, class, err)
}

func failureOf(id, op string, class sharetxn.Class, err error) *sharetxn.Error {
	return &sharetxn.Error{Op: op, Class: class, TransactionalID: id, Err: err}
}

func (m *TransactionManager) misuse(op, format string, args ...any) *sharetxn.Error {
	return m.failure(op, sharetxn.ClassUsage, fmt.Errorf("%w: "+format, append([]any{sharetxn.ErrUsage}, args...)...))
}

// refusal makes an error of what the state table refuses.
func (m *TransactionManager) refusal(op string, s State, refusal error) *sharetxn.Error {
	class := sharetxn.ClassOf(refusal)
	return m.failure(op, class, fmt.Errorf("%w (state: %v)", refusal, s))
}

// callRefused names the group of a staging request that was refused as a whole.
func (m *TransactionManager) callRefused(r *stageRequest, code int16) *sharetxn.Error {
	e := m.refused(rpcStage, code)
	e.Group = r.member.GroupID()
	return e
}

// partitionRefused names the partition.
func (m *TransactionManager) partitionRefused(code int16, group string, tp acks.TopicIDPartition) *sharetxn.Error {
	e := m.refused(rpcStagePartition, code)
	e.Group, e.Topic, e.Partition = group, topicName(tp), tp.Partition
	return e
}

// topicName is the name, or the id where the name is not known.
func topicName(tp acks.TopicIDPartition) string {
	if tp.Topic != "" {
		return tp.Topic
	}
	return fmt.Sprintf("%x", tp.TopicID)
}

// ended makes the error of an end whose outcome is not Committed.
func (m *TransactionManager) ended(op string, o sharetxn.Outcome, cause error) *sharetxn.Error {
	sentinel := sharetxn.ErrAborted
	if o == sharetxn.Unknown {
		sentinel = sharetxn.ErrOutcomeUnknown
	}
	err := sentinel
	if cause != nil {
		err = fmt.Errorf("%w: %w", sentinel, cause)
	}
	return m.failure(op, sharetxn.ClassOf(err), err)
}

// asProduceError gives a failed delivery its class; the partition is named by
// the caller.
func asProduceError(err error) (class sharetxn.Class, code int16, broker bool) {
	ke, ok := errors.AsType[*kerr.Error](err)
	if !ok {
		return sharetxn.ClassAbortable, 0, false
	}
	return classOf(classify(rpcProduce, ke.Code)), ke.Code, true
}

// ProduceError makes the error of a record whose delivery failed. A fatal code
// is fatal to the error's reader; whether the producer is done with is decided
// by the coordinator's answer to the abort. Safe for concurrent use.
func ProduceError(transactionalID, topic string, partition int32, err error) error {
	class, code, broker := asProduceError(err)
	return &sharetxn.Error{Op: "Produce", Class: class, Code: code, FromBroker: broker, TransactionalID: transactionalID, Topic: topic, Partition: partition, Err: err}
}

// cause is why ctx ended, with the context's own error kept in the chain.
func cause(ctx context.Context) error {
	err, c := ctx.Err(), context.Cause(ctx)
	if c == nil || errors.Is(c, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, c)
}

// openFailed makes an error of the kgo client's start. Its own InitProducerId
// is judged like ours.
func (m *TransactionManager) openFailed(err error) error {
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		return m.refused(rpcInit, ke.Code)
	}
	return m.failure("InitProducerId", sharetxn.ClassOf(err), err)
}
