package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// empty is nil if the group has no members, and also if it does not exist.
func empty(ctx context.Context, cl *kgo.Client, op, group string) error {
	described, err := describe(ctx, kadm.NewClient(cl), group)
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		return nil
	case err != nil:
		return topic.Failed("ShareGroupDescribe", group, "Describe on group "+group, err)
	}
	var members []string
	for _, m := range described[group].Members {
		members = append(members, fmt.Sprintf("%s at %s (%s)", m.ClientID, m.ClientHost, m.MemberID))
	}
	if len(members) == 0 {
		return nil
	}
	return notEmpty(op, group, members)
}

// coordinatorFor is how long a group's coordinator is waited for: on a cluster that
// never had a group, Kafka makes the topic of coordinators when the first is asked
// for. coordinatorEvery is between two questions.
const (
	coordinatorFor   = 30 * time.Second
	coordinatorEvery = 200 * time.Millisecond
)

// describe asks the group's coordinator, which may be about to come.
func describe(ctx context.Context, adm *kadm.Client, group string) (kadm.DescribedShareGroups, error) {
	for began := time.Now(); ; {
		described, err := adm.DescribeShareGroups(ctx, group)
		if err == nil {
			err = described.Error()
		}
		coming := errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.NotCoordinator)
		if !coming || time.Since(began) > coordinatorFor {
			return described, err
		}
		if !lapse.For(ctx, coordinatorEvery) {
			return described, errors.Join(context.Cause(ctx), err)
		}
	}
}

func notEmpty(op, group string, members []string) error {
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassAbortable, Group: group, Err: &GroupNotEmptyError{Group: group, Members: members}}
}
