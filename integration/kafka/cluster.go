package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kind is how a cluster came about, and with that what may be done to it.
type Kind string

const (
	// Existing runs already, wherever: BootstrapEnv names it.
	Existing Kind = "existing"
	// Process is brokers of this machine's Java, from Maven's jars.
	Process Kind = "process"
	// Container is brokers in containers of a local engine.
	Container Kind = "container"
)

// ErrUnavailable means that no broker can be had here: no Java, no Maven, no
// engine, or what is needed cannot be fetched. A broker that does not start is
// another error.
var ErrUnavailable = errors.New("stock Kafka is not to be had on this machine")

// ErrNotOurs is what a cluster that exists answers to all that would disturb it.
var ErrNotOurs = errors.New("the cluster is not ours to disturb: " + BootstrapEnv + " names it")

// Nodes are a cluster's brokers, with node ids from 1, and what can be done to
// them. Safe for concurrent use, except that one broker must not be killed and
// restarted at once.
type Nodes interface {
	// Seeds are the brokers' addresses in the order of their ids.
	Seeds() []string
	// Kill ends a broker at once, as a crash does, and waits until it is gone.
	Kill(id int32) error
	// Restart starts a broker that was killed, with its data and at its old
	// address; Cluster.Ready tells when it is back.
	Restart(id int32) error
	// Pause stops a broker from running without ending it: its connections stay,
	// and nobody answers. Resume lets it go on.
	Pause(id int32) error
	Resume(id int32) error
	// Process is the id of a broker's process on this machine; 0 if it has none.
	Process(id int32) int
	// Ended tells of the brokers that ended by themselves; nil if none did.
	Ended() error
	// Logs is the end of each broker's log.
	Logs() string
	// Said counts the lines with that text in all that the brokers have logged.
	Said(text string) (lines int, err error)
	// Stop ends all brokers and removes what they left, except files in folders
	// that were given.
	Stop() error
}

// Cluster is stock Kafka of one of the kinds.
type Cluster struct {
	Nodes
	Kind    Kind
	Version string // of Kafka, or what the brokers let one guess
	Brokers int    // how many there are when none is down
}

// Ready waits until each broker knows of all of them. It fails early when a
// broker has ended by itself.
func (c *Cluster) Ready(ctx context.Context) error {
	return each(c.Seeds(), func(_ int, addr string) error {
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
		if err != nil {
			return err
		}
		defer cl.Close()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			known, err := brokersKnown(ctx, cl)
			if err == nil && known == c.Brokers {
				return nil
			}
			if err := c.Ended(); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("the broker at %s is not ready, knows %d of %d brokers: %w (%w)", addr, known, c.Brokers, err, ctx.Err())
			}
		}
	})
}

// brokersKnown asks the client's first seed, so that no other broker answers.
func brokersKnown(ctx context.Context, cl *kgo.Client) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return 0, err
	}
	return len(resp.(*kmsg.MetadataResponse).Brokers), nil
}

// each does fn for all at once.
func each[T any](all []T, fn func(i int, one T) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, one := range all {
		wg.Go(func() { errs[i] = fn(i, one) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
