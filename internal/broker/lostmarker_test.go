package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What a log lacks the marker of stays open there, and the next marker of the
// producer id decides it: the abort of another transaction hides it, the commit of
// one that only names the partition shows it. A neighbouring partition has its own.
func TestLostMarker(t *testing.T) {
	for name, tc := range map[string]struct {
		next   string // written by the next transaction; empty: it only names the partition
		commit bool
		want   []string
	}{
		"repaired":          {"", true, []string{"lost", "neighbour"}},
		"hidden":            {"aborted", false, []string{"neighbour"}},
		"shown by the next": {"next", true, []string{"lost", "neighbour", "next"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 60*time.Second)
			c := start(t, Config{Brokers: 3, Topics: map[string]int32{"out": 2}})
			cl, adm := client(t, c), kadm.NewClient(client(t, c))
			p := producer(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			lost := 0
			c.TreatMarkers(func(m txn.Marker) txn.Treatment {
				if m.Partition.Partition == 0 && lost == 0 {
					lost++
					return txn.Treatment{Lose: true}
				}
				return txn.Treatment{}
			})
			if err := p.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := p.ProduceSync(ctx, &kgo.Record{Value: []byte("lost")}, &kgo.Record{Partition: 1, Value: []byte("neighbour")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			k := key(ctx, t, p)
			next, code := end(ctx, t, cl, k, true)
			wantCode(t, "commit", code, 0)
			if s := view(c).Status; s != txn.CompleteCommit || lost != 1 {
				t.Fatalf("the transaction is %v, %d markers were lost", s, lost)
			}
			open := func(partition int32) (kadm.DescribedProducer, bool) {
				t.Helper()
				got, err := adm.DescribeProducers(ctx, kadm.TopicsSet{"out": {partition: {}}})
				if err != nil {
					t.Fatal(err)
				}
				ps := got.SortedProducers()
				if len(ps) != 1 || ps[0].ProducerID != k.ProducerID {
					t.Fatalf("producers of %d: %+v", partition, ps)
				}
				return ps[0], ps[0].CurrentTxnStartOffset >= 0
			}
			if d, isOpen := open(0); !isOpen || d.ProducerEpoch != k.ProducerEpoch || d.CurrentTxnStartOffset != 0 {
				t.Fatalf("partition 0: %+v", d)
			}
			if d, isOpen := open(1); isOpen || d.ProducerEpoch != next.ProducerEpoch {
				t.Fatalf("partition 1: %+v", d)
			}
			if tc.next == "" {
				add := kmsg.NewPtrAddPartitionsToTxnRequest()
				add.Version, add.TransactionalID, add.ProducerID, add.ProducerEpoch = 3, "x", next.ProducerID, next.ProducerEpoch
				add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "out", Partitions: []int32{0}}}
				wantCode(t, "add", ask[*kmsg.AddPartitionsToTxnResponse](ctx, t, cl, add).Topics[0].Partitions[0].ErrorCode, 0)
			} else {
				if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil {
					t.Fatal(err)
				}
				write(ctx, t, p, tc.next)
			}
			_, code = end(ctx, t, cl, next, tc.commit)
			wantCode(t, "next end", code, 0)
			if d, isOpen := open(0); isOpen || d.ProducerEpoch != next.ProducerEpoch+1 {
				t.Fatalf("partition 0 after it: %+v", d)
			}
			got := committed(ctx, t, c, len(tc.want))
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("committed are %q, want %q", got, tc.want)
			}
			wantSettled(t, c, "out")
		})
	}
}
