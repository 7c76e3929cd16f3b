package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/twmb/franz-go/pkg/kadm"
)

// Brokers are what faults of brokers and leaders act on: a cluster, seen through
// one of its topics.
type Brokers struct {
	Cluster    *kafka.Cluster
	Admin      *kadm.Client
	Topic      string
	Partitions int
}

// Leaders of the topic's partitions, in order, with their replicas; ok is false
// while one has none.
func (b Brokers) Leaders(ctx context.Context) (leaders []int32, replicas [][]int32, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // the broker that is asked may be the paused one
	defer cancel()
	d, err := b.Admin.ListTopics(ctx, b.Topic)
	if err != nil || len(d[b.Topic].Partitions) != b.Partitions {
		return nil, nil, false
	}
	for _, p := range d[b.Topic].Partitions.Sorted() {
		if p.Leader < 1 || p.Err != nil {
			return nil, nil, false
		}
		leaders, replicas = append(leaders, p.Leader), append(replicas, p.Replicas)
	}
	return leaders, replicas, true
}

// Victim is a broker that leads something: for each nth that of the next
// partition.
func (b Brokers) Victim(ctx context.Context, nth int) (id int32, err error) {
	err = Until(ctx, "every partition has a leader", func() bool {
		leaders, _, ok := b.Leaders(ctx)
		if ok {
			id = leaders[nth%len(leaders)]
		}
		return ok
	})
	return id, err
}

// deposed waits until the broker leads nothing any more.
func (b Brokers) deposed(ctx context.Context, id int32) error {
	return Until(ctx, fmt.Sprintf("broker %d leads nothing", id), func() bool {
		leaders, _, ok := b.Leaders(ctx)
		return ok && !slices.Contains(leaders, id)
	})
}

// Kill kills a broker that leads something, and starts it again when others lead
// in its place. The cluster is whole when it returns.
func (b Brokers) Kill(ctx context.Context, id int32) error {
	if err := b.Cluster.Kill(id); err != nil {
		return err
	}
	if addr := b.Cluster.Seeds()[id-1]; !deaf(addr) {
		return fmt.Errorf("broker %d still listens at %s: %w", id, addr, ErrNothing)
	}
	if err := b.deposed(ctx, id); err != nil {
		return err
	}
	if err := b.Cluster.Restart(id); err != nil {
		return err
	}
	return b.Cluster.Ready(ctx)
}

// deaf tells whether nobody listens there.
func deaf(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// Pause lets a broker hang with all its connections open, longer than the
// controller waits for it.
func (b Brokers) Pause(ctx context.Context, id int32) error {
	if err := b.Cluster.Pause(id); err != nil {
		return err
	}
	moved := b.deposed(ctx, id)
	if err := b.Cluster.Resume(id); err != nil {
		return err
	}
	if moved != nil {
		return moved
	}
	return b.Cluster.Ready(ctx)
}

// MoveLeaders makes the next replica of each partition its preferred leader, and
// elects it.
func (b Brokers) MoveLeaders(ctx context.Context) error {
	var before []int32
	var replicas [][]int32
	if err := Until(ctx, "every partition has a leader", func() (ok bool) {
		before, replicas, ok = b.Leaders(ctx)
		return ok
	}); err != nil {
		return err
	}
	req := make(kadm.AlterPartitionAssignmentsReq)
	var want []int32
	for p, rs := range replicas {
		next := rs[(slices.Index(rs, before[p])+1)%len(rs)]
		order := slices.Insert(slices.DeleteFunc(slices.Clone(rs), func(id int32) bool { return id == next }), 0, next)
		req.Assign(b.Topic, int32(p), order)
		want = append(want, next)
	}
	if resp, err := b.Admin.AlterPartitionAssignments(ctx, req); err != nil {
		return err
	} else if err := resp.Error(); err != nil {
		return err
	}
	// A replica that is behind cannot be elected yet; so it is asked for again.
	return Until(ctx, fmt.Sprintf("leaders %v instead of %v", want, before), func() bool {
		var all kadm.TopicsSet
		for p := range int32(b.Partitions) {
			all.Add(b.Topic, p)
		}
		if _, err := b.Admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, all); err != nil {
			return false
		}
		after, _, ok := b.Leaders(ctx)
		return ok && slices.Equal(after, want)
	})
}
