// Package brokerconfig reads what brokers are configured with. It stands below
// all that asks it.
package brokerconfig

import (
	"context"
	"strconv"

	"github.com/sharetxn/sharetxn/internal/brokers"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Read asks one live broker for the named settings; what it does not have is not
// in the map. It needs DescribeConfigs on the cluster; a refusal is a *kerr.Error
// in the chain.
func Read(ctx context.Context, cl *kgo.Client, names ...string) (map[string]string, error) {
	live, err := brokers.Live(ctx, cl)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(live[0])), names
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string)
	for _, res := range resp.Resources {
		if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
			return nil, err
		}
		for _, c := range res.Configs {
			if c.Value != nil {
				out[c.Name] = *c.Value
			}
		}
	}
	return out, nil
}
