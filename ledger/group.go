package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// empty is nil if the group has no members, and also if it does not exist.
func empty(ctx context.Context, cl *kgo.Client, op, group string) error {
	described, err := kadm.NewClient(cl).DescribeShareGroups(ctx, group)
	if err == nil {
		err = described.Error()
	}
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

func notEmpty(op, group string, members []string) error {
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassAbortable, Group: group, Err: &GroupNotEmptyError{Group: group, Members: members}}
}
