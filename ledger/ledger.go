package ledger

import (
	"errors"
	"fmt"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Guarantees that a group can be under, as its ledger records them.
const (
	Ledger         = "ledger"
	Staged         = "staged"
	AckAfterCommit = "ack-after-commit"
)

// TopicName is the ledger topic of a group, of which there is one:
// __sharetxn_ledger.<group>. Partition n of it belongs to partition n of each of
// the group's source topics.
func TopicName(group string) string { return topic.Name(group) }

// Sentinels; test with errors.Is. Each comes inside a *sharetxn.Error, whose text
// names the command that mends it.
var (
	// ErrMissing: the group has no ledger topic. Create it: Ensure.
	ErrMissing = topic.ErrMissing
	// ErrNoGeneration: partitions of the ledger do not say which generation it is
	// in, since it was made or widened by something else. Ensure writes it.
	ErrNoGeneration = topic.ErrNoGeneration
	// ErrMixed: partitions say different generations, since a reset or a move did
	// not come to its end. Run it again.
	ErrMixed = topic.ErrMixed
	// ErrResetting: a reset began and did not end. Run Reset again.
	ErrResetting = topic.ErrResetting
	// ErrMoving: a move to another guarantee began and did not end. Run Move again.
	ErrMoving = topic.ErrMoving
	// ErrGuarantee: the group is under another guarantee than Ledger. Move it.
	ErrGuarantee = errors.New("the group is under another guarantee")
	// ErrGroupNotEmpty: the group has members, as *GroupNotEmptyError tells them.
	// Stop them, or wait until the coordinator has given up those that died
	// (share.session.timeout.ms), and run it again.
	ErrGroupNotEmpty = errors.New("the share group has members")
	// ErrChanged: another reset or move ran at the same time. Run one after the
	// other.
	ErrChanged = errors.New("the ledger was changed by another at the same time")
)

// GroupNotEmptyError is an ErrGroupNotEmpty.
type GroupNotEmptyError struct {
	Group   string
	Members []string // client id, host and member id of each; the broker may not tell them
}

func (e *GroupNotEmptyError) Error() string {
	return fmt.Sprintf("%v: %q; stop them, or wait until the coordinator has given up those that died, and run this again", ErrGroupNotEmpty, e.Members)
}

// Is matches ErrGroupNotEmpty.
func (e *GroupNotEmptyError) Is(target error) bool { return target == ErrGroupNotEmpty }

func usage(op, group, format string, args ...any) error {
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassUsage, Group: group, Err: fmt.Errorf("%w: "+format, append([]any{sharetxn.ErrUsage}, args...)...)}
}

// check refuses what can never work.
func check(op string, cl *sharetxn.Cluster, group string) error {
	if cl == nil {
		return usage(op, group, "cluster: nil")
	}
	return topic.CheckGroup(op, group)
}

// checkTopics refuses names of source topics that can never work.
func checkTopics(op, group string, topics []string) error {
	if len(topics) == 0 {
		return usage(op, group, "topics: none; name the topics that the group consumes")
	}
	for _, name := range topics {
		switch name {
		case "":
			return usage(op, group, "topics: an empty name")
		case topic.Name(group):
			return usage(op, group, "topics: %s is the ledger itself", name)
		}
	}
	return nil
}

// use lends the cluster's client.
func use(cl *sharetxn.Cluster, op, group string, f func(*kgo.Client) error) error {
	return topic.Failed(op, group, "what the request needs", core.Of(cl).Use(f))
}

// unusable says that the group's ledger cannot be used as it is.
func unusable(op, group string, err error) error { return topic.Unusable(op, group, err) }
