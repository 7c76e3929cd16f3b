package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kgo"
)

// EnsureOpt is an option of Ensure.
type EnsureOpt interface{ applyEnsure(*ensureConfig) }

type ensureConfig struct {
	replicas int16
	set      bool
}

type replicationFactor int16

func (n replicationFactor) applyEnsure(c *ensureConfig) { c.replicas, c.set = int16(n), true }

// ReplicationFactor is how many replicas a topic that Ensure makes gets, 1 or
// more; one that exists keeps its own. Default 3, or the number of brokers where
// there are fewer. If all replicas of a ledger are lost, records that were
// committed and not acknowledged are done a second time.
func ReplicationFactor(n int16) EnsureOpt { return replicationFactor(n) }

// Ensure creates the ledger topic of a group, with as many partitions as the
// largest of the source topics has, or widens it, and writes the generation
// record into each partition that has none. It waits until every broker shows the
// topic, at most until ctx ends. It changes no config of a topic that exists
// (Check tells which are wrong), may be called again at any time, by many at the
// same time, and beside running processors. Safe for concurrent use.
//
// A group's first ledger needs the group without members: one that works under
// another guarantee writes no entries, and its records could be done twice.
//
// Errors: class usage for arguments, and for more replicas than brokers;
// ErrGroupNotEmpty; ErrGuarantee for a group under another guarantee; ErrResetting
// and ErrMixed; class fatal, with what to grant, where brokers refuse; abortable
// where no broker has come to know a source topic within 3 s, or brokers were not
// reached: what was done by then stays, and the next call goes on.
func Ensure(ctx context.Context, cl *sharetxn.Cluster, group string, topics []string, opts ...EnsureOpt) error {
	const op = "Ensure"
	var cfg ensureConfig
	for _, o := range opts {
		o.applyEnsure(&cfg)
	}
	if err := check(op, cl, group); err != nil {
		return err
	}
	if err := checkTopics(op, group, topics); err != nil {
		return err
	}
	if cfg.set && cfg.replicas < 1 {
		return usage(op, group, "ReplicationFactor: %d, want 1 or more", cfg.replicas)
	}
	return use(cl, op, group, func(client *kgo.Client) error {
		partitions, err := widest(ctx, client, op, group, topics)
		if err != nil {
			return err
		}
		if err := topic.Make(ctx, client, group, partitions, int(cfg.replicas)); err != nil {
			return err
		}
		return begin(ctx, core.Of(cl), client, op, group)
	})
}

// unknownFor is how long a source topic may be unknown to all brokers before it
// does not exist: whoever made it a moment ago may be ahead of them.
const unknownFor = 3 * time.Second

// widest is how many partitions the largest of the topics has.
func widest(ctx context.Context, client *kgo.Client, op, group string, topics []string) (int, error) {
	for deadline := time.Now().Add(unknownFor); ; {
		most, unknown, err := look(ctx, client, group, topics)
		switch {
		case err != nil:
			return 0, err
		case unknown == "":
			return most, nil
		case time.Now().After(deadline):
			return 0, &sharetxn.Error{Op: op, Class: sharetxn.ClassAbortable, Group: group, Err: fmt.Errorf("source topic %s does not exist, and the ledger must be as wide as the widest: create it first, or mend its name", unknown)}
		case !lapse.For(ctx, unknownFor/30):
			return 0, &sharetxn.Error{Op: op, Class: sharetxn.ClassAbortable, Group: group, Err: fmt.Errorf("no broker knows source topic %s yet: %w", unknown, context.Cause(ctx))}
		}
	}
}

// look gives the most partitions that one of the topics has, and a topic that no
// broker knows, if there is one.
func look(ctx context.Context, client *kgo.Client, group string, topics []string) (most int, unknown string, _ error) {
	infos, refused, err := topic.Describe(ctx, client, topics...)
	if err != nil {
		return 0, "", err
	}
	for i, name := range topics {
		if err := refused[name]; err != nil {
			return 0, "", topic.Failed("Metadata", group, "Describe on topic "+name, fmt.Errorf("topic %s: %w", name, err))
		}
		if infos[i].Partitions == 0 {
			unknown = name
		}
		most = max(most, infos[i].Partitions)
	}
	return most, unknown, nil
}

// begin writes the generation where it is missing, and looks whether all
// partitions agree then.
func begin(ctx context.Context, co *core.Cluster, client *kgo.Client, op, group string) error {
	for wrote := false; ; wrote = true {
		states, err := read(ctx, co, client, group)
		if err != nil {
			return err
		}
		current, err := states.Current()
		switch {
		case current.Guarantee != "" && current.Guarantee != Ledger:
			return otherGuarantee(op, group, current.Guarantee)
		case err == nil:
			return nil
		case !errors.Is(err, topic.ErrNoGeneration) || wrote:
			return unusable(op, group, err)
		}
		if current == (entry.Generation{}) {
			if err := empty(ctx, client, op, group); err != nil {
				return err
			}
			current = entry.Generation{Number: 1, Guarantee: Ledger, Phase: entry.Active, Group: group}
		}
		if err := topic.WriteGeneration(ctx, co, group, current, states.Lacking()); err != nil {
			return err
		}
	}
}

func otherGuarantee(op, group, guarantee string) error {
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassFatal, Group: group, Err: fmt.Errorf("%w: %s; to move it, stop its members and run: sharetxn ledger move --bootstrap $BOOTSTRAP --group %s --to ledger", ErrGuarantee, guarantee, group)}
}

// read gives the states of all partitions that the ledger has now. A topic that is
// not there, or holds what this library does not understand, is fatal.
func read(ctx context.Context, co *core.Cluster, client *kgo.Client, group string) (topic.States, error) {
	name := topic.Name(group)
	infos, refused, err := topic.Describe(ctx, client, name)
	switch err = cmp.Or(err, refused[name]); {
	case err != nil:
		return nil, topic.Failed("Metadata", group, "Describe on topic "+name, fmt.Errorf("topic %s: %w", name, err))
	case infos[0].Partitions == 0:
		return nil, unusable("Ledger", group, topic.ErrMissing)
	}
	states, err := topic.ReadStates(ctx, co, group, infos[0].Partitions)
	if topic.Remedy(group, err) != "" {
		return nil, unusable("Ledger", group, err)
	}
	return states, err
}
