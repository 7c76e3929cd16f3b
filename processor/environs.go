package processor

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// environsEvery is how often they are looked at again: a group's config may
// change, a topic come into being.
const environsEvery = 30 * time.Second

// environs are what a Processor must know of its group and topics beside the
// records.
type environs struct {
	cl        *sharetxn.Cluster
	group     string
	limit     *limit
	isolation *isolation
	topics    []string

	mu      sync.Mutex
	missing []string // of topics, by the last look
}

// watch looks again until ctx ends, soon after it could not.
func (e *environs) watch(ctx context.Context, seen bool) {
	for next := time.Second; ; next = min(2*next, environsEvery) {
		if seen {
			next = environsEvery
		}
		if !lapse.For(ctx, next) {
			return
		}
		seen = e.look(ctx)
	}
}

// look tells whether all could be asked.
func (e *environs) look(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	configs, err := groupconfig.Describe(ctx, e.cl, e.group)
	if err == nil {
		e.isolation.see(configs)
	}
	return core.Of(e.cl).Use(func(cl *kgo.Client) error {
		if err := e.limit.read(ctx, cl, configs, err); err != nil {
			return err
		}
		missing, err := missingTopics(ctx, cl, e.topics)
		if err == nil {
			e.note(missing)
		}
		return err
	}) == nil
}

// note keeps what is missing, and has it told.
func (e *environs) note(missing []string) {
	e.mu.Lock()
	e.missing = missing
	e.mu.Unlock()
	for _, topic := range e.topics {
		core.Of(e.cl).SeenTopic(topic, !slices.Contains(missing, topic))
	}
}

func (e *environs) missingNow() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.missing)
}

func missingTopics(ctx context.Context, cl *kgo.Client, topics []string) (missing []string, _ error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	for _, t := range resp.Topics {
		if t.ErrorCode == kerr.UnknownTopicOrPartition.Code && t.Topic != nil {
			missing = append(missing, *t.Topic)
		}
	}
	slices.Sort(missing)
	return missing, nil
}
