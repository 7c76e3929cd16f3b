// Package brokers asks all brokers that live, one by one: each applies the
// metadata log by itself, so that what one tells the next may not know yet.
package brokers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrNone is of a broker that has just started.
var ErrNone = errors.New("metadata names no brokers")

// Live are the brokers that are alive, by metadata.
func Live(ctx context.Context, cl *kgo.Client) ([]int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	if len(resp.Brokers) == 0 {
		return nil, ErrNone
	}
	nodes := make([]int32, len(resp.Brokers))
	for i, b := range resp.Brokers {
		nodes[i] = b.NodeID
	}
	return nodes, nil
}

// Between two looks at brokers that are behind.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// Await calls look for every broker until it returned nil for each of them once,
// for those that are behind again and again. It gives up when ctx ends, or when
// final says that waiting mends nothing, with look's error for one of those that
// are behind.
func Await(ctx context.Context, cl *kgo.Client, look func(ctx context.Context, node int32) error, final func(error) bool) error {
	seen := make(map[int32]bool)
	var last error
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		nodes, err := Live(ctx, cl)
		if err == nil {
			if err = lookAll(ctx, nodes, seen, look); err == nil {
				return nil
			}
		}
		if final(err) {
			return err
		}
		if ctx.Err() == nil || last == nil {
			last = err // later ones say only that time is up
		}
		if !lapse.For(ctx, pause) {
			return last
		}
	}
}

// lookAll looks at those that are not among seen, at the same time, and adds those
// that are as they should be; nil if all are.
func lookAll(ctx context.Context, nodes []int32, seen map[int32]bool, look func(context.Context, int32) error) (behind error) {
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, node := range nodes {
		if !seen[node] {
			wg.Go(func() { errs[i] = look(ctx, node) })
		}
	}
	wg.Wait()
	for i, node := range nodes {
		if errs[i] != nil {
			behind = errs[i]
		} else {
			seen[node] = true
		}
	}
	return behind
}
