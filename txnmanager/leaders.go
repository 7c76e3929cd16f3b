package txnmanager

import (
	"context"
	"fmt"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaders knows who leads the partitions that acknowledgements are for. It may
// be behind: a broker says so. Used by whoever has the turn.
type leaders struct {
	client *kgo.Client
	known  map[partKey]int32
}

func (l *leaders) of(tp acks.TopicIDPartition) (node int32, ok bool) {
	node, ok = l.known[keyOf(tp)]
	return node, ok
}

// forget makes the next staging ask.
func (l *leaders) forget() { l.known = nil }

// refresh asks for the topics of tps and forgets all else.
func (l *leaders) refresh(ctx context.Context, tps []acks.TopicIDPartition) error {
	req := kmsg.NewPtrMetadataRequest()
	asked := make(map[[16]byte]struct{})
	for _, tp := range tps {
		if _, twice := asked[tp.TopicID]; twice {
			continue
		}
		asked[tp.TopicID] = struct{}{}
		t := kmsg.NewMetadataRequestTopic()
		t.TopicID = tp.TopicID
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, l.client)
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	l.known = make(map[partKey]int32)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.Leader >= 0 {
				l.known[partKey{t.TopicID, p.Partition}] = p.Leader
			}
		}
	}
	return nil
}
