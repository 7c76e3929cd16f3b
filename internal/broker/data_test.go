package broker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/journal"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kill has the world go on with a cluster of the same addresses that has what
// the folder held at this moment, while the cluster was at work: what a killed
// process leaves. Nothing may be answered meanwhile that a test relies on.
func (w *world) kill(cfg broker.Config) {
	w.t.Helper()
	cfg.Data = killed(w.t, cfg.Data)
	for _, addr := range w.Seeds() {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			w.t.Fatal(err)
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			w.t.Fatal(err)
		}
		cfg.Ports = append(cfg.Ports, n)
	}
	w.Close()
	cfg.Brokers, cfg.Topics = len(cfg.Ports), map[string]int32{"in": 3, "out": 3}
	cfg.HeartbeatInterval, cfg.OffsetReset = 100*time.Millisecond, "latest" // starts are kept
	c, err := broker.Start(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Cluster = c
}

// killed copies a folder as it is.
func killed(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "killed")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// done tells whether the group is through with the first record of a partition.
func (w *world) done(partition int32) bool {
	for _, p := range w.PartitionStates("g") {
		if p.Topic == w.TopicID("in") && p.Partition == partition {
			return p.Start > 0
		}
	}
	return false
}

func (w *world) ended() bool {
	return !slices.ContainsFunc(w.Transactions(), func(v txn.View) bool { return v.Status != txn.CompleteCommit && v.Status != txn.CompleteAbort })
}

// A cluster that is killed when everything is staged and the commit has not come
// lets the transaction go on: its outputs are there, and its input is done with
// them. In profile KIP93 what was staged was in memory only, which its text
// concedes: the input comes again.
func TestDataStaged(t *testing.T) {
	ctx := testkit.Deadline(t, 120*time.Second)
	for _, p := range profiles {
		t.Run(p.wire.String(), func(t *testing.T) {
			cfg := broker.Config{Profile: p.wire, Data: t.TempDir()}
			w := begin(t, p.root, cfg)
			w.feed(ctx, 1)
			b := w.poll(ctx)
			held, _ := w.holdEndTxn()
			copied := make(chan error, 1)
			go func() { copied <- w.copy(ctx, b) }()
			<-held
			w.wantState("staged", 1, share.TxPending)
			w.kill(cfg)
			if err := <-copied; err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(ctx, t, "markers are written", w.ended)
			if got := w.visible(ctx); !slices.Equal(got, []string{"0"}) {
				t.Errorf("visible: %q", got)
			}
			if w.done(1) != (p.wire == wire.Draft95) {
				t.Errorf("the input is done: %v", w.done(1))
			}
			if p.wire == wire.Draft95 { // and the next life goes on where this one was
				w.feed(ctx, 1)
				w.copyFed(ctx, w.poll(ctx))
			}
		})
	}
}

// What was decided before the kill is carried out after it, whether no marker was
// written or all but the records' own; none is written twice.
func TestDataPrepared(t *testing.T) {
	ctx := testkit.Deadline(t, 120*time.Second)
	for _, p := range profiles {
		for name, wait := range map[string]func(txn.Marker) bool{
			"no marker":      func(txn.Marker) bool { return true },
			"marker of logs": func(m txn.Marker) bool { return m.Share },
		} {
			for _, commit := range []bool{true, false} {
				t.Run(fmt.Sprintf("%v, %s, commit %v", p.wire, name, commit), func(t *testing.T) {
					cfg := broker.Config{Profile: p.wire, Data: t.TempDir()}
					w := begin(t, p.root, cfg)
					w.feed(ctx, 1)
					b := w.poll(ctx)
					waiting := make(chan struct{}, 9)
					w.TreatMarkers(func(m txn.Marker) (how txn.Treatment) {
						if wait(m) {
							how.Wait = make(chan struct{})
							waiting <- struct{}{}
						}
						return how
					})
					if commit {
						if err := w.copy(ctx, b); err != nil {
							t.Fatal(err)
						}
					}
					var copied chan error
					if !commit {
						copied = w.stageAndAbort(ctx, b)
					}
					<-waiting
					if w.ended() {
						t.Fatal("nothing was left to be done")
					}
					w.kill(cfg)
					if !commit {
						if err := <-copied; !errors.Is(err, sharetxn.ErrAborted) {
							t.Errorf("copied: %v", err)
						}
					}
					testkit.Eventually(ctx, t, "markers are written", w.ended)
					want := []string(nil)
					if commit {
						want = []string{"0"}
					}
					if got := w.visible(ctx); !slices.Equal(got, want) {
						t.Errorf("visible: %q, want %q", got, want)
					}
					if done := commit && p.wire == wire.Draft95; w.done(1) != done {
						t.Errorf("the input is done: %v", w.done(1))
					}
					ends := int64(0)
					for partition := range int32(3) {
						bounds, err := w.Bounds("out", partition)
						if err != nil || bounds.LastStable != bounds.End {
							t.Errorf("out-%d: %+v, %v", partition, bounds, err)
						}
						ends += bounds.End
					}
					if ends != 2 {
						t.Errorf("%d records and markers, want one of each", ends)
					}
				})
			}
		}
	}
}

// stageAndAbort copies a batch, and has somebody else's abort come before the
// commit, of which copied tells later.
func (w *world) stageAndAbort(ctx context.Context, b *shareconsumer.Batch) (copied chan error) {
	w.t.Helper()
	cl, err := w.cl.Client()
	if err != nil {
		w.t.Fatal(err)
	}
	defer cl.Close()
	held, release := w.holdEndTxn()
	copied = make(chan error, 1)
	go func() { copied <- w.copy(ctx, b) }()
	<-held
	v := w.Transactions()[0]
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = v.ID, v.ProducerID, v.ProducerEpoch
	resp, err := req.RequestWith(ctx, cl)
	if err != nil || resp.ErrorCode != 0 {
		w.t.Fatalf("abort: %v, %v", resp, err)
	}
	close(release)
	return copied
}

// Records that were acquired at the kill are free after it, with the deliveries
// that were written down, as after a leader's move; what was acknowledged stays
// so. Members join again by themselves.
func TestDataLocks(t *testing.T) {
	ctx := testkit.Deadline(t, 120*time.Second)
	cfg := broker.Config{Data: t.TempDir()}
	w := begin(t, profiles[0].root, cfg)
	w.copyNext(ctx, 1)
	w.feed(ctx, 1)
	b := w.poll(ctx)
	b.Records()[0].Release()
	if err := b.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	b = w.poll(ctx)
	if n := b.Records()[0].DeliveryCount(); n != 2 {
		t.Fatalf("delivery %d", n)
	}
	alone := cfg
	alone.Brokers, alone.Data = 3, killed(t, cfg.Data)
	c, err := broker.Start(alone) // nobody acquires anything there
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if s, _, count, ok := c.StateOf("g", "in", 1, 1); !ok || s != share.Available || count != 1 {
		t.Errorf("after the kill: %v, delivered %d times, in the window: %v", s, count, ok)
	}
	if _, _, _, ok := c.StateOf("g", "in", 1, 0); ok {
		t.Error("what was done is in the window")
	}
	w.kill(cfg)
	w.copyFed(ctx, w.poll(ctx))
}

// copyFed copies until a transaction commits, beginning with b: the member finds
// out only by and by that it has to join again, and that its records are others'.
// Then all that was fed is there once.
func (w *world) copyFed(ctx context.Context, b *shareconsumer.Batch) {
	w.t.Helper()
	for err := w.copy(ctx, b); err != nil; err = w.copy(ctx, b) {
		if !errors.Is(err, sharetxn.ErrAborted) {
			w.t.Fatal(err)
		}
		b.Close()
		b = w.poll(ctx)
	}
	testkit.Eventually(ctx, w.t, "markers are written", w.ended)
	var want []string
	for i := range w.fed {
		want = append(want, fmt.Sprint(i))
	}
	if got := w.visible(ctx); !slices.Equal(got, want) {
		w.t.Errorf("visible: %q, want %q", got, want)
	}
}

// A batch whose answer was lost to the kill comes again, and is not written
// again: in a transaction, which then commits, and without.
func TestDataRepeatedProduce(t *testing.T) {
	ctx := testkit.Deadline(t, 120*time.Second)
	for name, opts := range map[string][]kgo.Opt{"idempotent": nil, "transactional": {kgo.TransactionalID("x")}} {
		t.Run(name, func(t *testing.T) {
			cfg := broker.Config{Data: t.TempDir()}
			w := begin(t, profiles[0].root, cfg)
			cl, err := w.cl.Client(append(opts, kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			if opts != nil {
				if err := cl.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
			}
			record := func(value string) *kgo.Record { return &kgo.Record{Topic: "out", Value: []byte(value)} }
			if err := cl.ProduceSync(ctx, record("first")).FirstErr(); err != nil {
				t.Fatal(err)
			}
			lost := make(chan struct{})
			var once sync.Once
			w.SetIntercept(func(r broker.Request) (act broker.Action) {
				if r.Key == keyProduce {
					act.LoseRequest = true
					once.Do(func() { act = broker.Action{LoseAnswer: true, Then: func() { close(lost) }} })
				}
				return act
			})
			produced := make(chan error, 1)
			go func() { produced <- cl.ProduceSync(ctx, record("second")).FirstErr() }()
			<-lost
			w.kill(cfg)
			if err := <-produced; err != nil {
				t.Fatal(err)
			}
			if err := cl.ProduceSync(ctx, record("third")).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if opts != nil {
				if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
					t.Fatal(err)
				}
			}
			if got := w.visible(ctx); !slices.Equal(got, []string{"first", "second", "third"}) {
				t.Errorf("visible: %q", got)
			}
		})
	}
}

// Topics, their ids, leaders and log starts, features and the configs of groups
// are what they were, after two kills as after one.
func TestDataSettings(t *testing.T) {
	ctx := testkit.Deadline(t, 120*time.Second)
	cfg := broker.Config{Data: t.TempDir(), ShareVersion: 2}
	w := begin(t, profiles[0].root, cfg)
	if err := w.raise(ctx, 3, 1); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.feed(ctx, 1)
		w.feed(ctx, 2)
	}
	for _, to := range []int32{2, 0, 2} {
		if err := w.MoveLeader("in", 1, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.SetGroupConfig("other", map[string]string{"share.delivery.count.limit": "7"}); err != nil {
		t.Fatal(err)
	}
	adm, err := w.cl.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	tell := func() string {
		t.Helper()
		topics, err := kadm.NewClient(adm).ListTopics(ctx, "in", "out")
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		topics.EachPartition(func(p kadm.PartitionDetail) {
			b, err := w.Bounds(p.Topic, p.Partition)
			all = append(all, fmt.Sprint(p.Topic, topics[p.Topic].ID, p.Partition, p.Leader, p.LeaderEpoch, b, err))
		})
		slices.Sort(all)
		features, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, adm)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range features.FinalizedFeatures {
			if f.Name == "share.version" {
				all = append(all, fmt.Sprint(f.Name, f.MaxVersionLevel))
			}
		}
		describe := kmsg.NewPtrDescribeConfigsRequest()
		group := kmsg.NewDescribeConfigsRequestResource()
		group.ResourceType, group.ResourceName = kmsg.ConfigResourceTypeGroupConfig, "other"
		describe.Resources = append(describe.Resources, group)
		configs, err := describe.RequestWith(ctx, adm)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range configs.Resources[0].Configs {
			if c.Name == "share.delivery.count.limit" {
				all = append(all, c.Name+*c.Value)
			}
		}
		return strings.Join(all, "\n")
	}
	for topic, to := range map[int32]int64{1: 2, 2: 3} {
		offsets := make(kadm.Offsets)
		offsets.Add(kadm.Offset{Topic: "in", Partition: topic, At: to})
		if got, err := kadm.NewClient(adm).DeleteRecords(ctx, offsets); err != nil || got.Error() != nil {
			t.Fatal(err, got.Error())
		}
	}
	before := tell()
	if !strings.Contains(before, "limit7") || !strings.Contains(before, "share.version3") || !strings.Contains(before, "{2 3 3}") || !strings.Contains(before, "{3 3 3}") {
		t.Fatalf("before:\n%s", before)
	}
	for range 2 {
		w.kill(cfg)
		if after := tell(); after != before {
			t.Fatalf("before:\n%s\nafter:\n%s", before, after)
		}
	}
	w.feed(ctx, 2) // the log that is empty goes on where it ended
	if b, err := w.Bounds("in", 2); err != nil || b.Start != 3 || b.End != 4 {
		t.Errorf("%+v, %v", b, err)
	}
}

// The offsets that a transaction commits to a group are its own until it ends,
// also over a kill.
func TestDataOffsets(t *testing.T) {
	ctx := testkit.Deadline(t, 120*time.Second)
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprint("commit ", commit), func(t *testing.T) {
			cfg := broker.Config{Data: t.TempDir()}
			w := begin(t, profiles[0].root, cfg)
			w.feed(ctx, 0)
			session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(w.Seeds()...), kgo.TransactionalID("classic"), kgo.ConsumerGroup("classic"), kgo.ConsumeTopics("in"),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableClientMetrics())
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			if fs := session.PollFetches(ctx); fs.NumRecords() != 1 {
				t.Fatal(fs.Errors())
			}
			if err := session.Begin(); err != nil {
				t.Fatal(err)
			}
			if err := session.ProduceSync(ctx, &kgo.Record{Topic: "out", Value: []byte("x")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			// kgo itself ends what it staged; here each is asked for alone.
			id, epoch, err := session.Client().ProducerID(ctx)
			if err != nil {
				t.Fatal(err)
			}
			stage := kmsg.NewPtrTxnOffsetCommitRequest()
			stage.TransactionalID, stage.Group, stage.ProducerID, stage.ProducerEpoch, stage.Generation = "classic", "classic", id, epoch, -1
			st := kmsg.NewTxnOffsetCommitRequestTopic()
			st.Topic, st.TopicID = "in", w.TopicID("in")
			sp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			sp.Offset = 1
			st.Partitions = append(st.Partitions, sp)
			stage.Topics = append(stage.Topics, st)
			staged, err := stage.RequestWith(ctx, session.Client())
			if err != nil || staged.Topics[0].Partitions[0].ErrorCode != 0 {
				t.Fatal(staged, err)
			}
			w.kill(cfg)
			adm, err := w.cl.Client()
			if err != nil {
				t.Fatal(err)
			}
			defer adm.Close()
			offset := func() int64 {
				got, err := kadm.NewClient(adm).FetchOffsets(ctx, "classic")
				if err != nil {
					t.Fatal(err)
				}
				o, _ := got.Lookup("in", 0)
				return o.At
			}
			if at := offset(); at > 0 {
				t.Errorf("offset %d before the end", at)
			}
			end := kmsg.NewPtrEndTxnRequest()
			end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = "classic", id, epoch, commit
			if resp, err := end.RequestWith(ctx, adm); err != nil || resp.ErrorCode != 0 {
				t.Fatal(resp, err)
			}
			if at := offset(); (at == 1) != commit {
				t.Errorf("offset %d after the end", at)
			}
			if got := w.visible(ctx); (len(got) == 1) != commit {
				t.Errorf("visible: %q", got)
			}
		})
	}
}

// A folder is one cluster's at a time, of one kind; what is wrong is said with
// the file's name, and nothing is left behind.
func TestDataRefused(t *testing.T) {
	ctx := testkit.Deadline(t, 120*time.Second)
	dir := t.TempDir()
	cfg := broker.Config{Data: dir, Brokers: 2, Topics: map[string]int32{"in": 1}}
	start := func(cfg broker.Config) error {
		c, err := broker.Start(cfg)
		if err == nil {
			c.Close()
		}
		return err
	}
	c, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := start(cfg); !errors.Is(err, journal.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("two at a time: %v", err)
	}
	if _, err := c.AddNode(); err == nil {
		t.Error("a node was added")
	}
	k, err := kgo.NewClient(kgo.SeedBrokers(c.Seeds()...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for range 2 {
		if err := k.ProduceSync(ctx, &kgo.Record{Topic: "in", Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	for name, other := range map[string]broker.Config{
		"brokers": {Brokers: 1}, "profile": {Brokers: 2, Profile: wire.KIP93}, "stock": {Brokers: 2, Stock44: true},
	} {
		other.Data = dir
		if err := start(other); err == nil || !strings.Contains(err.Error(), "2 brokers, profile draft95") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, file := range []string{"state", "logs/partitions/in-0/0.dat", "logs/pids.log", "logs/topics.json"} {
		bad := killed(t, dir)
		path := filepath.Join(bad, file)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)/3] ^= 0x40
		if file == "logs/topics.json" {
			raw = raw[:len(raw)/2]
		}
		if err := os.WriteFile(path, raw, 0o644); err != nil {
			t.Fatal(err)
		}
		cfg.Data = bad
		if err := start(cfg); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "corrupt") {
			t.Errorf("%s: %v", file, err)
		}
	}
	cfg.Data = dir
	if err := start(cfg); err != nil {
		t.Errorf("the folder itself: %v", err)
	}
}
