package txnmanager

import (
	"fmt"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/groupmeta"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// stageAnswer is what a TxnShareAcknowledge answer means for its request.
type stageAnswer struct {
	again  bool  // the same bytes once more, after a pause
	code   int16 // of the whole answer, or the one that asks for again
	moved  []part
	failed *failedPart // the first partition that failed
}

type failedPart struct {
	tp   acks.TopicIDPartition
	code int16
}

// read judges an answer. An error means that it does not fit its request: then
// nothing is known to be staged.
func (r *stageRequest) read(resp *wire.Response) (stageAnswer, error) {
	switch classify(rpcStage, resp.ErrorCode) {
	case vOK:
	case vAgain:
		return stageAnswer{again: true, code: resp.ErrorCode}, nil
	default:
		return stageAnswer{code: resp.ErrorCode}, nil
	}
	answers, err := r.answers(resp)
	if err != nil {
		return stageAnswer{}, err
	}
	var out stageAnswer
	for _, p := range r.parts {
		switch code := answers[keyOf(p.tp)]; classify(rpcStagePartition, code) {
		case vOK:
		case vAgain:
			out.again, out.code = true, code
		case vMoved:
			out.moved = append(out.moved, p)
		default:
			if out.failed == nil {
				out.failed = &failedPart{p.tp, code}
			}
		}
	}
	if out.again && out.failed == nil {
		out.moved = nil // they are asked for again with the rest
	}
	return out, nil
}

// answers are the codes of just the partitions that were asked for.
func (r *stageRequest) answers(resp *wire.Response) (map[partKey]int16, error) {
	answers := make(map[partKey]int16)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			k := partKey{t.TopicID, p.Partition}
			if _, twice := answers[k]; twice {
				return nil, fmt.Errorf("answer names partition %x-%d twice", t.TopicID, p.Partition)
			}
			answers[k] = p.ErrorCode
		}
	}
	for _, p := range r.parts {
		if _, ok := answers[keyOf(p.tp)]; !ok {
			return nil, fmt.Errorf("answer leaves partition %v out", p.tp)
		}
	}
	if n := len(answers) - len(r.parts); n > 0 {
		return nil, fmt.Errorf("answer names %d partitions that were not asked for", n)
	}
	return answers, nil
}

// partKey is a partition's identity.
type partKey struct {
	topic [16]byte
	part  int32
}

func keyOf(tp acks.TopicIDPartition) partKey { return partKey{tp.TopicID, tp.Partition} }

// freedSet is which partitions' records may be anyone's after an abort: all that
// an attempt may have staged at a broker of a profile that frees them, whatever
// later attempts were answered, and those that were found to be another's. It is
// complete before anyone reads it.
type freedSet map[memberPart]struct{}

type memberPart struct {
	group, member string
	partKey
}

// mark is for a request of which nothing proves that it staged nothing.
func (s freedSet) mark(r *stageRequest) {
	for _, p := range r.parts {
		s.add(r.member, p.tp)
	}
}

// add is for a partition whose records are proven not to be all the member's: who
// took them for its own would run them again without end.
func (s freedSet) add(m groupmeta.ShareGroupMetadata, tp acks.TopicIDPartition) {
	s[memberPart{m.GroupID(), m.MemberID(), keyOf(tp)}] = struct{}{}
}

func (s freedSet) has(group, member string, tp acks.TopicIDPartition) bool {
	_, ok := s[memberPart{group, member, keyOf(tp)}]
	return ok
}
