package txnmanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// seen is what the answer about one partition says of a transaction's end.
type seen uint8

const (
	seenMarker  seen = iota // it is in the log
	seenOpen                // it is not, and the transaction is open there
	seenNothing             // nothing is open, and nothing proves the marker
	seenGone                // there is no such partition
	seenMoved               // another broker leads
	seenDenied              // we may not know
	seenFailed              // ask again
)

func (s seen) String() string {
	return [...]string{"marker", "open", "nothing", "gone", "moved", "denied", "failed"}[s]
}

// look reads the answer about one partition. A producer's epoch in the log is that
// of the last marker once there is one, and markers have the epoch after their
// transaction's (KIP-890).
func look(p *kmsg.DescribeProducersResponseTopicPartition, of identity) seen {
	switch p.ErrorCode {
	case 0:
	case kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code:
		return seenGone
	case kerr.NotLeaderForPartition.Code, kerr.LeaderNotAvailable.Code, kerr.FencedLeaderEpoch.Code, kerr.UnknownLeaderEpoch.Code:
		return seenMoved
	case kerr.TopicAuthorizationFailed.Code:
		return seenDenied
	default:
		return seenFailed
	}
	for _, a := range p.ActiveProducers {
		switch {
		case a.ProducerID != of.id:
		case a.CurrentTxnStartOffset >= 0:
			return seenOpen
		case a.ProducerEpoch > int32(of.epoch):
			return seenMarker
		}
	}
	return seenNothing
}

// Where a commit's partition does not show the marker, nor anything open, or is not
// there, that must be told so often over so long before it is believed: the broker
// that told it may be behind. What an abort's partition does not have is not there.
const (
	gonePatience = 5 * time.Second
	goneTimes    = 3
)

// believed counts the times, and tells whether they are enough.
func (d *doubt) believed(commit bool, now time.Time) bool {
	if d.times++; d.times == 1 {
		d.since = now
	}
	return !commit || d.times >= goneTimes && now.Sub(d.since) >= gonePatience
}

var (
	errNoLeader    = errors.New("the partition has no leader")
	errOtherLeader = errors.New("another broker leads it")
	errNoProof     = errors.New("its leader knows nothing of the transaction")
	errGone        = errors.New("there is no such partition")
)

// ask asks the leaders of what is left for its producers, one request each, strikes
// out where the end is seen, and gives what is open. The error says what could not
// be seen.
func (l *landing) ask(ctx context.Context) (open []place, err error) {
	if len(l.todo) == 0 {
		return nil, nil
	}
	byNode, err := l.route(ctx)
	if err != nil {
		return nil, err
	}
	type answer struct {
		node int32
		resp *kmsg.DescribeProducersResponse
		err  error
	}
	answers := make(chan answer, len(byNode))
	var wg sync.WaitGroup
	for node, places := range byNode {
		if node < 0 {
			continue
		}
		wg.Go(func() {
			kresp, err := l.m.clientNow().Broker(int(node)).Request(ctx, describe(places))
			resp, _ := kresp.(*kmsg.DescribeProducersResponse)
			answers <- answer{node, resp, err}
		})
	}
	wg.Wait()
	close(answers)
	var errs []error
	for _, p := range byNode[-1] {
		errs = append(errs, &placeError{p, errNoLeader})
	}
	for a := range answers {
		if a.err != nil {
			for _, p := range byNode[a.node] {
				delete(l.m.led, p)
			}
			errs = append(errs, &placeError{byNode[a.node][0], fmt.Errorf("DescribeProducers at its leader %d: %w", a.node, a.err)})
			continue
		}
		left := slices.Clone(byNode[a.node])
		for i := range a.resp.Topics {
			for j := range a.resp.Topics[i].Partitions {
				part := &a.resp.Topics[i].Partitions[j]
				p := place{a.resp.Topics[i].Topic, part.Partition}
				at := slices.Index(left, p)
				if at < 0 {
					continue
				}
				left = slices.Delete(left, at, at+1)
				s := look(part, l.of)
				if s == seenOpen {
					if err := l.opened(p, part); err != nil {
						return nil, err
					}
					open = append(open, p)
					l.todo[p] = doubt{}
				} else if err := l.saw(p, s, part.ErrorCode); err != nil {
					errs = append(errs, &placeError{p, err})
				}
			}
		}
		for _, p := range left {
			errs = append(errs, &placeError{p, errors.New("the answer leaves it out")})
		}
	}
	return open, errors.Join(errs...)
}

// saw takes what was seen, but for what is open. nil: that is settled.
func (l *landing) saw(p place, s seen, code int16) error {
	switch s {
	case seenMarker:
		delete(l.todo, p)
		return nil
	case seenDenied:
		l.m.denied(p.topic)
		delete(l.todo, p)
		return nil
	case seenNothing, seenGone:
		err := errNoProof
		if s == seenGone {
			err = errGone
		}
		if !l.fresh[p] { // whom we asked may lead no more
			delete(l.m.led, p)
			return err
		}
		return l.doubted(p, err)
	case seenMoved:
		delete(l.m.led, p)
		return errOtherLeader
	case seenOpen, seenFailed:
	}
	delete(l.m.led, p)
	return fmt.Errorf("DescribeProducers: %w", codeError(code))
}

// doubted counts a doubt; nil once it is none.
func (l *landing) doubted(p place, err error) error {
	d := l.todo[p]
	if d.believed(l.commit, time.Now()) {
		delete(l.todo, p)
		return nil
	}
	l.todo[p] = d
	if l.commit {
		delete(l.m.led, p) // asked for anew each time
	}
	return err
}

// describe asks for producers.
func describe(places []place) *kmsg.DescribeProducersRequest {
	req := kmsg.NewPtrDescribeProducersRequest()
	for _, t := range byTopic(places) {
		rt := kmsg.NewDescribeProducersRequestTopic()
		rt.Topic, rt.Partitions = t.topic, t.partitions
		req.Topics = append(req.Topics, rt)
	}
	return req
}

type topicParts struct {
	topic      string
	partitions []int32
}

// byTopic groups places, which are in order.
func byTopic(places []place) (out []topicParts) {
	for _, p := range places {
		if n := len(out); n == 0 || out[n-1].topic != p.topic {
			out = append(out, topicParts{topic: p.topic})
		}
		t := &out[len(out)-1]
		t.partitions = append(t.partitions, p.partition)
	}
	return out
}

// route gives what is left by leader, -1 for none, each in order. What is known of
// leaders is kept from one transaction to the next.
func (l *landing) route(ctx context.Context) (map[int32][]place, error) {
	m := l.m
	var unknown []place
	for _, p := range ordered(l.todo) {
		if _, known := m.led[p]; !known {
			unknown = append(unknown, p)
		}
	}
	if len(unknown) > 0 {
		if err := l.lookUp(ctx, unknown); err != nil {
			return nil, err
		}
	}
	byNode := make(map[int32][]place)
	for _, p := range ordered(l.todo) {
		node, known := m.led[p]
		if !known {
			node = -1
		}
		byNode[node] = append(byNode[node], p)
	}
	return byNode, nil
}

// lookUp asks for the leaders of places. Those of topics that are not there count
// as doubts.
func (l *landing) lookUp(ctx context.Context, places []place) error {
	var topics []string
	for _, t := range byTopic(places) {
		topics = append(topics, t.topic)
	}
	there, passing, err := l.m.metadata(ctx, topics...)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range places {
		l.fresh[p] = true
		if there[p] || passing[p.topic] != 0 {
			continue
		}
		if err := l.doubted(p, errGone); err != nil {
			errs = append(errs, &placeError{p, err})
		}
	}
	return errors.Join(errs...)
}

// metadata asks which partitions topics have, and takes note of their leaders. A topic
// with a passing error has no partitions here, and is no topic that is gone.
func (m *TransactionManager) metadata(ctx context.Context, topics ...string) (there map[place]bool, passing map[string]int16, err error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, m.clientNow())
	if err != nil {
		return nil, nil, fmt.Errorf("metadata: %w", err)
	}
	there, passing = make(map[place]bool), make(map[string]int16)
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		if t.ErrorCode != kerr.UnknownTopicOrPartition.Code {
			passing[*t.Topic] = t.ErrorCode
		}
		for _, p := range t.Partitions {
			at := place{*t.Topic, p.Partition}
			there[at] = true
			if p.Leader >= 0 {
				m.led[at] = p.Leader
			}
		}
	}
	return there, passing, nil
}

// denied warns, once for a topic, that ends are not seen there.
func (m *TransactionManager) denied(topic string) {
	m.mu.Lock()
	before := m.unseen[topic]
	m.unseen[topic] = true
	m.mu.Unlock()
	if !before {
		m.log.Warn("no right to see whether transactions end in a topic, so a marker that a broker loses is not noticed, and its records may be lost or published twice: allow READ on the topic",
			"transactional_id", m.id, "topic", topic)
	}
}
