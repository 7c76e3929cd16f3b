package groupconfig

import (
	"context"
	"errors"
	"fmt"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/brokers"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/probe"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Set sets configs of a share group, which need not exist yet, all or none, and
// waits until every broker tells them, at most until ctx ends.
//
// Errors: class usage, with nothing sent, for a key that is given twice, an empty
// one, or none; ErrUnknownKey and ErrInvalidValue, with nothing set, where brokers
// refuse; class fatal without the right to AlterConfigs on the group;
// *NotVisibleError, with all set, where a broker does not tell them in time; what
// a connection fails with is abortable, and it may be set or not. Safe for
// concurrent use.
func Set(ctx context.Context, cl *sharetxn.Cluster, group string, settings ...Setting) error {
	if err := check(cl, group, settings); err != nil {
		return err
	}
	return use(cl, "Set", group, func(client *kgo.Client) error {
		if err := alter(ctx, client, group, settings); err != nil {
			return err
		}
		return await(ctx, client, group, settings)
	})
}

// Describe reads the configs of a share group, defaults included, from one
// broker; a group need not exist. Errors: class fatal without the right to
// DescribeConfigs on the group; what a connection fails with is abortable. Safe
// for concurrent use.
func Describe(ctx context.Context, cl *sharetxn.Cluster, group string) (Configs, error) {
	if err := checkGroup("Describe", cl, group); err != nil {
		return Configs{}, err
	}
	var out Configs
	err := use(cl, "Describe", group, func(client *kgo.Client) (err error) {
		out, err = describe(ctx, group, func(ctx context.Context, req *kmsg.DescribeConfigsRequest) (kmsg.Response, error) {
			return client.Request(ctx, req)
		})
		return err
	})
	return out, err
}

func checkGroup(op string, cl *sharetxn.Cluster, group string) error {
	switch {
	case cl == nil:
		return usage(op, group, "cluster: nil")
	case group == "":
		return usage(op, group, "group: empty")
	}
	return nil
}

func check(cl *sharetxn.Cluster, group string, settings []Setting) error {
	if err := checkGroup("Set", cl, group); err != nil {
		return err
	}
	if len(settings) == 0 {
		return usage("Set", group, "settings: none")
	}
	seen := make(map[string]bool)
	for _, s := range settings {
		switch {
		case s.key == "":
			return usage("Set", group, "a setting without a key")
		case seen[s.key]:
			return usage("Set", group, "%s is given twice", s.key)
		}
		seen[s.key] = true
	}
	return nil
}

// use lends the cluster's client and makes what it fails with ours.
func use(cl *sharetxn.Cluster, op, group string, f func(*kgo.Client) error) error {
	err := core.Of(cl).Use(f)
	_, ours := errors.AsType[*sharetxn.Error](err)
	_, late := errors.AsType[*NotVisibleError](err)
	switch {
	case err == nil || ours || late:
		return err
	case errors.Is(err, core.ErrClosed):
		return &sharetxn.Error{Op: op, Class: sharetxn.ClassFatal, Group: group, Err: sharetxn.ErrClosed}
	case probe.Behind(err):
		return &sharetxn.Error{Op: op, Class: sharetxn.ClassFatal, Group: group, Err: fmt.Errorf("%w: group configs (IncrementalAlterConfigs and DescribeConfigs): %w", sharetxn.ErrUnsupported, err)}
	}
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassAbortable, Group: group, Err: err}
}

func alter(ctx context.Context, client *kgo.Client, group string, settings []Setting) error {
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for _, s := range settings {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = s.key, &s.value
		if s.unset {
			c.Op, c.Value = kmsg.IncrementalAlterConfigOpDelete, nil
		}
		res.Configs = append(res.Configs, c)
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, r := range resp.Resources {
		if r.ErrorCode != 0 {
			return refusal("IncrementalAlterConfigs", group, r.ErrorCode, r.ErrorMessage, why(ctx, client, group, r.ErrorCode, settings))
		}
	}
	return nil
}

// why tells an unknown key from a bad value, which a broker's code does not: it
// is asked for all keys it has.
func why(ctx context.Context, client *kgo.Client, group string, code int16, settings []Setting) error {
	if code != kerr.InvalidConfig.Code {
		return ErrInvalidValue
	}
	has, err := describe(ctx, group, func(ctx context.Context, req *kmsg.DescribeConfigsRequest) (kmsg.Response, error) {
		return client.Request(ctx, req)
	})
	if err != nil {
		return ErrInvalidValue
	}
	for _, s := range settings {
		if _, known := has.Entry(s.key); !known {
			return fmt.Errorf("%w: %s", ErrUnknownKey, s.key)
		}
	}
	return ErrInvalidValue
}

func describe(ctx context.Context, group string, ask func(context.Context, *kmsg.DescribeConfigsRequest) (kmsg.Response, error)) (Configs, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	req.Resources = append(req.Resources, r)
	resp, err := ask(ctx, req)
	if err != nil {
		return Configs{}, err
	}
	answers := resp.(*kmsg.DescribeConfigsResponse).Resources
	if len(answers) != 1 {
		return Configs{}, fmt.Errorf("DescribeConfigs: %d answers for one group", len(answers))
	}
	if res := answers[0]; res.ErrorCode != 0 {
		return Configs{}, refusal("DescribeConfigs", group, res.ErrorCode, res.ErrorMessage, ErrInvalidValue)
	}
	return read(answers[0].Configs), nil
}

// await asks every broker until all have been seen to have it.
func await(ctx context.Context, client *kgo.Client, group string, settings []Setting) error {
	err := brokers.Await(ctx, client, func(ctx context.Context, node int32) error {
		if behind := look(ctx, client, group, settings, node); behind != nil {
			return behind
		}
		return nil
	}, sharetxn.IsFatal)
	if err == nil || sharetxn.IsFatal(err) {
		return err // it will not tell
	}
	behind, ok := errors.AsType[*NotVisibleError](err)
	if !ok {
		behind = &NotVisibleError{Group: group, Broker: -1, Err: err}
	}
	behind.Err = errors.Join(context.Cause(ctx), behind.Err)
	return behind
}

func look(ctx context.Context, client *kgo.Client, group string, settings []Setting, node int32) *NotVisibleError {
	got, err := describe(ctx, group, func(ctx context.Context, req *kmsg.DescribeConfigsRequest) (kmsg.Response, error) {
		return client.Broker(int(node)).Request(ctx, req)
	})
	if err != nil {
		return &NotVisibleError{Group: group, Broker: node, Err: err}
	}
	if s, found, missing := got.missing(settings); missing {
		return &NotVisibleError{Group: group, Broker: node, Key: s.key, Want: s.value, Found: found}
	}
	return nil
}
