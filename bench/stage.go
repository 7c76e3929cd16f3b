package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// stage is a stock Kafka broker with what contests need of it.
type stage struct {
	cluster *kafka.Cluster
	dir     string
	cl      *sharetxn.Cluster
	client  *kgo.Client
	admin   *kadm.Client
}

// brokerJVM is as kafka-server-start.sh has it.
var brokerJVM = []string{"-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"}

// openStage starts the broker; an error is kafka.ErrUnavailable where there is
// none to be had. Heartbeats come as often as given: that decides how soon some
// members have their first record.
func openStage(ctx context.Context, heartbeat time.Duration, progress io.Writer) (*stage, error) {
	dir, err := os.MkdirTemp("", "sharetxn-bench-")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir}
	fmt.Fprintln(progress, "starting Kafka", kafka.Version())
	starting, cancel := context.WithTimeout(ctx, 3*time.Minute) // the jars may have to be fetched
	defer cancel()
	s.cluster, err = kafka.Start(starting, dir, 1, kafka.JVM(brokerJVM...),
		kafka.Set("group.share.heartbeat.interval.ms", heartbeat.Milliseconds()))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.cl, err = sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(s.cluster.Seeds()...)), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.client, err = s.cl.Client()
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.admin = kadm.NewClient(s.client)
	return s, nil
}

func (s *stage) close() error {
	if s.client != nil {
		s.client.Close()
	}
	if s.cl != nil {
		s.cl.Close()
	}
	return errors.Join(s.cluster.Stop(), os.RemoveAll(s.dir))
}

// seeds as contenders take them.
func (s *stage) seeds() string { return strings.Join(s.cluster.Seeds(), ",") }

// broker is the process id of the only broker.
func (s *stage) broker() int { return s.cluster.Process(1) }

func (s *stage) topic(ctx context.Context, name string, partitions int) error {
	_, err := s.admin.CreateTopic(ctx, int32(partitions), 1, nil, name)
	return err
}

// fill writes records of size bytes, numbered from 0, to a topic's partitions evenly,
// uncompressed, in producer batches of at most batch bytes.
func (s *stage) fill(ctx context.Context, topic string, partitions, records, size, batch int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.cluster.Seeds()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics(),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(int32(batch)))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for i := range records {
		r := &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: numbered(i, size)}
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				cancel(err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// group sets a group's configs, beside reading from the start.
func (s *stage) group(ctx context.Context, name string, settings ...groupconfig.Setting) error {
	return groupconfig.Set(ctx, s.cl, name, append(settings, groupconfig.AutoOffsetReset("earliest"))...)
}

// drained waits until the broker says that a group has no record left.
func (s *stage) drained(ctx context.Context, group string, partitions int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := s.lag(ctx, group, partitions)
		if err == nil && left == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("group %s has %d records left", group, left), err)
		}
	}
}

// lag is how many records a group has left; an error if a partition's is not
// known yet.
func (s *stage) lag(ctx context.Context, group string, partitions int) (left int64, err error) {
	all, err := s.admin.DescribeShareGroupOffsets(ctx, group)
	if err != nil {
		return 0, err
	}
	g := all[group]
	if err := errors.Join(g.Err, g.Offsets.Error()); err != nil {
		return 0, err
	}
	offsets := g.Offsets.Sorted()
	if len(offsets) != partitions {
		return 0, fmt.Errorf("lag of %d partitions, want %d", len(offsets), partitions)
	}
	for _, o := range offsets {
		if o.Lag < 0 {
			return 0, fmt.Errorf("partition %d: lag unknown", o.Partition)
		}
		left += o.Lag
	}
	return left, nil
}

// drop deletes a group, so that a run leaves nothing to the next.
func (s *stage) drop(ctx context.Context, group string) error {
	resp, err := s.admin.DeleteGroup(ctx, group)
	return errors.Join(err, resp.Err)
}

// remove deletes topics.
func (s *stage) remove(ctx context.Context, topics ...string) error {
	resp, err := s.admin.DeleteTopics(ctx, topics...)
	return errors.Join(err, resp.Error())
}

// ledger makes a group's ledger. The first group of a broker waits for its
// coordinator.
func (s *stage) ledger(ctx context.Context, group, topic string) error {
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for {
		err := ledger.Ensure(ctx, s.cl, group, []string{topic})
		if sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
			return err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return err
		}
	}
}
