package topic

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/sharetxn/sharetxn/internal/brokers"
	"github.com/sharetxn/sharetxn/internal/ledger/rules"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Info is what metadata tells of a topic.
type Info struct {
	ID         [16]byte
	Partitions int // 0: it does not exist
	Replicas   int // of the partition that has fewest
	Brokers    []int32
	leaderless bool // some partition has no leader
}

// requester is any broker, or one.
type requester interface {
	Request(context.Context, kmsg.Request) (kmsg.Response, error)
}

// ErrDisagree is of brokers that show different topics under one name: it was made
// anew, and one of them does not know yet.
var ErrDisagree = errors.New("brokers show different topics under its name")

// Describe asks every live broker for topics, and tells what the one knows that
// shows most partitions, in the order of names: a topic that was just made or
// widened is not known to all. One that may not be described is
// kerr.TopicAuthorizationFailed in errs, by name; the error is for all else.
func Describe(ctx context.Context, cl *kgo.Client, names ...string) (infos []Info, errs map[string]error, _ error) {
	first, err := ask(ctx, cl, names)
	if err != nil {
		return nil, nil, err
	}
	answers := make([]answer, len(first.brokers)+1)
	answers[len(first.brokers)] = first
	var wg sync.WaitGroup
	for i, node := range first.brokers {
		wg.Go(func() {
			// One that does not answer knows no more than those that do, once they are not behind.
			answers[i], _ = ask(ctx, cl.Broker(int(node)), names)
		})
	}
	wg.Wait()
	infos, errs = make([]Info, len(names)), make(map[string]error)
	for i, name := range names {
		for _, a := range answers {
			found, seen := a.found[name], infos[i]
			if found.Partitions > 0 && seen.Partitions > 0 && found.ID != seen.ID {
				return nil, nil, fmt.Errorf("metadata of topic %s: %w; try again", name, ErrDisagree)
			}
			if found.Partitions > seen.Partitions {
				infos[i] = found
			}
			if err := a.refused[name]; err != nil {
				errs[name] = err
			}
		}
		if infos[i].Partitions > 0 {
			delete(errs, name)
		}
		infos[i].Brokers = first.brokers
	}
	return infos, errs, nil
}

// answer is what one broker knows; a topic that does not exist is in neither.
type answer struct {
	found   map[string]Info
	refused map[string]error
	brokers []int32
}

func ask(ctx context.Context, from requester, names []string) (answer, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	kresp, err := from.Request(ctx, req)
	if err != nil {
		return answer{}, err
	}
	resp := kresp.(*kmsg.MetadataResponse)
	a := answer{make(map[string]Info), make(map[string]error), nil}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err == nil:
			a.found[*t.Topic] = infoOf(t)
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			a.refused[*t.Topic] = err
		case !errors.Is(err, kerr.UnknownTopicOrPartition):
			return answer{}, fmt.Errorf("metadata of topic %s: %w", *t.Topic, err)
		}
	}
	for _, b := range resp.Brokers {
		a.brokers = append(a.brokers, b.NodeID)
	}
	return a, nil
}

func infoOf(t kmsg.MetadataResponseTopic) Info {
	i := Info{ID: t.TopicID, Partitions: len(t.Partitions)}
	for at, p := range t.Partitions {
		if at == 0 || len(p.Replicas) < i.Replicas {
			i.Replicas = len(p.Replicas)
		}
		i.leaderless = i.leaderless || p.Leader < 0
	}
	return i
}

// Names gives the names of topics by their ids; those that do not exist have none.
func Names(ctx context.Context, cl *kgo.Client, ids [][16]byte) (map[[16]byte]string, error) {
	out := make(map[[16]byte]string)
	if len(ids) == 0 {
		return out, nil // none asked for would be all
	}
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for _, id := range ids {
		t := kmsg.NewMetadataRequestTopic()
		t.TopicID = id
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	for _, t := range resp.Topics {
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err == nil && t.Topic != nil:
			out[t.TopicID] = *t.Topic
		case err != nil && !errors.Is(err, kerr.UnknownTopicID):
			return nil, fmt.Errorf("metadata of the topic with id %x: %w", t.TopicID, err)
		}
	}
	return out, nil
}

// one describes a single topic; that it may not be is an error.
func one(ctx context.Context, cl *kgo.Client, name string) (Info, error) {
	infos, refused, err := Describe(ctx, cl, name)
	if err != nil {
		return Info{}, err
	}
	return infos[0], refused[name]
}

// shown is the topic as one broker shows it; that it may not is an error.
func shown(ctx context.Context, cl *kgo.Client, node int32, name string) (Info, error) {
	a, err := ask(ctx, cl.Broker(int(node)), []string{name})
	if err != nil {
		return Info{}, err
	}
	return a.found[name], a.refused[name]
}

// usualReplicas is how often a ledger is replicated where nobody says: as few
// entries as possible should be lost with brokers.
const usualReplicas = 3

// Make makes the group's ledger topic with so many partitions, or widens it to
// them, and returns when every broker shows it so. Whoever does the same at the
// same time does no harm, and a topic that is there keeps its configs. replicas
// 0: three, or as many as there are brokers.
func Make(ctx context.Context, cl *kgo.Client, group string, partitions, replicas int) error {
	name := Name(group)
	now, err := one(ctx, cl, name)
	if err != nil {
		return Failed("Metadata", group, "Describe on topic "+name, err)
	}
	if now.Partitions == 0 {
		if replicas == 0 {
			replicas = min(usualReplicas, max(1, len(now.Brokers)))
		}
		err := create(ctx, cl, name, partitions, replicas)
		switch {
		case err == nil:
			return await(ctx, cl, group, partitions)
		case !errors.Is(err, kerr.TopicAlreadyExists): // of another who was first, and may have made it narrower
			return Failed("CreateTopics", group, "Create on topic "+name, fmt.Errorf("topic %s with replication factor %d: %w", name, replicas, err))
		}
	}
	if now.Partitions < partitions {
		if err := widen(ctx, cl, name, partitions); err != nil && !errors.Is(err, kerr.InvalidPartitions) { // it has as many
			return Failed("CreatePartitions", group, "Alter on topic "+name, fmt.Errorf("topic %s: %w", name, err))
		}
	}
	return await(ctx, cl, group, partitions)
}

var errBehind = errors.New("not there yet")

// await waits until every broker shows the topic, with leaders.
func await(ctx context.Context, cl *kgo.Client, group string, partitions int) error {
	name := Name(group)
	err := brokers.Await(ctx, cl, func(ctx context.Context, node int32) error {
		i, err := shown(ctx, cl, node, name)
		switch {
		case err != nil:
			return fmt.Errorf("broker %d: %w", node, err)
		case i.Partitions < partitions || i.leaderless:
			return fmt.Errorf("%w: broker %d shows %d partitions of topic %s, not %d, or some without a leader", errBehind, node, i.Partitions, name, partitions)
		}
		return nil
	}, func(err error) bool { return errors.Is(err, kerr.TopicAuthorizationFailed) })
	if err == nil {
		return nil
	}
	return Failed("Metadata", group, "Describe on topic "+name, errors.Join(context.Cause(ctx), err))
}

// segmentBytes is the size of the log's files. Brokers free the disk of what was
// deleted file by file, and never that of the file they write: with their usual
// 1 GiB a ledger that is truncated each minute would still grow to that.
const segmentBytes = 16 << 20

func create(ctx context.Context, cl *kgo.Client, name string, partitions, replicas int) error {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(partitions), int16(replicas)
	configs := rules.TopicConfigs(replicas)
	configs["segment.bytes"] = strconv.Itoa(segmentBytes)
	for key, value := range configs {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = key, &value
		t.Configs = append(t.Configs, c)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis, req.Topics = adminMillis, append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		if err := coded(t.ErrorCode, t.ErrorMessage); err != nil {
			return err
		}
	}
	return nil
}

// adminMillis is how long a broker may work on an admin request.
const adminMillis = 15_000

func widen(ctx context.Context, cl *kgo.Client, name string, partitions int) error {
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = name, int32(partitions)
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis, req.Topics = adminMillis, append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		if err := coded(t.ErrorCode, t.ErrorMessage); err != nil {
			return err
		}
	}
	return nil
}

// coded is a broker's code with its words.
func coded(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err == nil || message == nil || *message == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, *message)
}
