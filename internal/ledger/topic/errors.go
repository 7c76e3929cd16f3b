package topic

import (
	"errors"
	"fmt"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Why a ledger is not usable. Each comes inside a *sharetxn.Error.
var (
	// ErrMissing: there is no ledger topic.
	ErrMissing = errors.New("the group has no ledger topic")
	// ErrNoGeneration: some partitions, or all, do not say which generation the
	// ledger is in: it was not made by Ensure, or was widened by something else.
	ErrNoGeneration = errors.New("the ledger has no generation")
	// ErrMixed: partitions say different generations: something that writes to
	// all of them did not come to its end.
	ErrMixed = errors.New("the ledger's partitions are not of one generation")
	// ErrResetting: a reset began and did not end.
	ErrResetting = errors.New("a reset of the ledger has not ended")
	// ErrMoving: a move to another guarantee began and did not end.
	ErrMoving = errors.New("a move of the group to another guarantee has not ended")
)

// Remedy is the command that mends a ledger which is not usable for this reason;
// empty where there is none. $BOOTSTRAP stands for the brokers' addresses, TOPICS
// for the group's source topics.
func Remedy(group string, err error) string {
	switch {
	case errors.Is(err, ErrMissing), errors.Is(err, ErrNoGeneration):
		return "sharetxn ledger create --bootstrap $BOOTSTRAP --group " + group + " --topics TOPICS"
	case errors.Is(err, ErrResetting):
		return "sharetxn ledger reset --bootstrap $BOOTSTRAP --group " + group + " --to TIME"
	case errors.Is(err, ErrMoving):
		return "sharetxn ledger move --bootstrap $BOOTSTRAP --group " + group + " --to GUARANTEE"
	case errors.Is(err, ErrMixed):
		return "sharetxn ledger reset --bootstrap $BOOTSTRAP --group " + group + " --to TIME, or again the sharetxn ledger move that did not end"
	case errors.Is(err, entry.ErrVersion):
		return "update sharetxn in this process; all processes of the group should have the same"
	case errors.Is(err, entry.ErrCorrupt):
		return "find what else writes to topic " + Name(group) + " and stop it; then drain the group, delete the topic and create it anew (docs/ledger.md)"
	}
	return ""
}

// Unusable is the error, of class fatal, of who needs the ledger and cannot use it
// for this reason.
func Unusable(op, group string, err error) error {
	if command := Remedy(group, err); command != "" {
		err = fmt.Errorf("%w; mend it with: %s", err, command)
	}
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassFatal, Group: group, Err: err}
}

// Failed makes ours of what a request failed with. right is what to grant where
// brokers refuse for want of rights.
func Failed(op, group, right string, err error) error {
	if _, ours := errors.AsType[*sharetxn.Error](err); ours || err == nil {
		return err
	}
	out := &sharetxn.Error{Op: op, Class: sharetxn.ClassAbortable, Group: group, Err: err}
	if errors.Is(err, core.ErrClosed) {
		out.Class, out.Err = sharetxn.ClassFatal, sharetxn.ErrClosed
	}
	code, ok := errors.AsType[*kerr.Error](err)
	if !ok {
		return out
	}
	out.Code, out.FromBroker = code.Code, true
	switch code {
	case kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.GroupAuthorizationFailed:
		out.Class, out.Err = sharetxn.ClassFatal, fmt.Errorf("%w (grant %s)", err, right)
	case kerr.PolicyViolation:
		out.Class, out.Err = sharetxn.ClassFatal, fmt.Errorf("%w (a policy of the cluster refuses it: ask who runs it to create the topic)", err)
	case kerr.InvalidReplicationFactor:
		out.Class, out.Err = sharetxn.ClassUsage, fmt.Errorf("%w (not so many brokers are alive)", err)
	}
	return out
}
