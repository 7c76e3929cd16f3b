package demo

import (
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// seen is what goes over the wire between processes and brokers: what a group has
// handed out of the source topic, and which transactions have ended. Safe for
// concurrent use.
type seen struct {
	mu    sync.Mutex
	by    map[spot]handout
	lock  time.Duration // as brokers told it last
	ended map[txn.Key]bool
}

// observe gives what is to be done with the answer to a request.
func (s *seen) observe(r reader, m kmsg.Request) func(kmsg.Response) {
	sent := time.Now()
	switch m := m.(type) {
	case *kmsg.ShareFetchRequest:
		renewals := r.places(m, renewed)
		return func(answer kmsg.Response) {
			if answer, ok := answer.(*kmsg.ShareFetchResponse); ok {
				s.renewed(renewals, sent, answer)
				s.fetched(r.source, value(m.MemberID), sent, answer)
			}
		}
	case *kmsg.ShareAcknowledgeRequest:
		if renewals := r.places(m, renewed); len(renewals) > 0 {
			return func(answer kmsg.Response) { s.renewed(renewals, sent, answer) }
		}
	case *kmsg.EndTxnRequest:
		return func(answer kmsg.Response) {
			if !refused(answer) {
				s.end(txn.Key{ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch})
			}
		}
	}
	return nil
}

func (s *seen) end(k txn.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = make(map[txn.Key]bool)
	}
	s.ended[k] = true
}

// over tells whether a transaction was seen to end.
func (s *seen) over(k txn.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[k]
}

type spot struct {
	partition int32
	offset    int64
}

// handout is the last one of a record.
type handout struct {
	member     string
	until      time.Time // its lock holds at least so long
	deliveries int16
}

// fetched takes what a fetch brought. Its locks began after it was sent.
func (s *seen) fetched(source [16]byte, member string, sent time.Time, answer *kmsg.ShareFetchResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = make(map[spot]handout)
	}
	s.lock = time.Duration(answer.AcquisitionLockTimeoutMillis) * time.Millisecond
	for _, t := range answer.Topics {
		if t.TopicID != source {
			continue
		}
		for _, p := range t.Partitions {
			for _, x := range p.AcquiredRecords {
				for offset := x.FirstOffset; offset <= x.LastOffset; offset++ {
					s.by[spot{p.Partition, offset}] = handout{member, sent.Add(s.lock), x.DeliveryCount}
				}
			}
		}
	}
}

// renewed takes the renewals of a request, unless any of it was refused.
func (s *seen) renewed(renewals []place, sent time.Time, answer kmsg.Response) {
	if len(renewals) == 0 || refused(answer) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range renewals {
		for offset := p.first; offset <= p.last; offset++ {
			at := spot{p.partition, offset}
			if h, ok := s.by[at]; ok {
				h.until = sent.Add(s.lock)
				s.by[at] = h
			}
		}
	}
}

func (s *seen) of(partition int32, offset int64) handout {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[spot{partition, offset}]
}

// refused tells whether an answer refuses any of what its request wanted.
func refused(answer kmsg.Response) bool {
	var codes []int16
	switch m := answer.(type) {
	case *kmsg.EndTxnResponse:
		codes = append(codes, m.ErrorCode)
	case *wire.Response:
		codes = append(codes, m.ErrorCode)
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
	case *kmsg.ShareAcknowledgeResponse:
		codes = append(codes, m.ErrorCode)
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
	case *kmsg.ShareFetchResponse:
		codes = append(codes, m.ErrorCode)
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, p.AcknowledgeErrorCode)
			}
		}
	default:
		return true
	}
	for _, c := range codes {
		if c != 0 {
			return true
		}
	}
	return false
}
