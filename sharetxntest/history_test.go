package sharetxntest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
	"github.com/twmb/franz-go/pkg/kgo"
)

// named is a handler whose outputs name their source; of value "skip" it makes
// none, and it rejects "bad".
func named(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
	switch string(in.Value) {
	case "skip":
		return nil, nil
	case "bad":
		return nil, processor.Reject(errors.New("bad"))
	}
	return []*kgo.Record{{Topic: "out", Value: in.Value, Headers: []kgo.RecordHeader{{Key: "from", Value: fmt.Appendf(nil, "%s %d %d", in.Topic, in.Partition, in.Offset)}}}}, nil
}

func source(r *kgo.Record) (o Origin, ok bool) {
	for _, h := range r.Headers {
		if h.Key == "from" {
			_, err := fmt.Sscan(string(h.Value), &o.Topic, &o.Partition, &o.Offset)
			return o, err == nil
		}
	}
	return o, false
}

// serve runs a Processor with the handler until all of these values are done.
func serve(t testing.TB, k *Cluster, g processor.Guarantee, dead processor.DeadLetter, values ...string) {
	t.Helper()
	for _, v := range values {
		k.Feed(t, &kgo.Record{Topic: "in", Value: []byte(v)})
	}
	if g == processor.Ledger {
		if err := ledger.Ensure(context.Background(), k.Connect(t), "g", []string{"in"}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := processor.New(k.Connect(t), processor.Config{Group: "g", Topics: []string{"in"}, Guarantee: g, Handler: named, DeadLetter: dead})
	if err != nil {
		t.Fatal(err)
	}
	k.RunUntilDrained(t, "g", p)
}

// Every guarantee's history is judged by every rule, while a reader reads along,
// and holds; as a file it says the same.
func TestAssertHistory(t *testing.T) {
	for g, brokers := range map[processor.Guarantee]Opt{processor.Staged: Brokers(3), processor.Ledger: StockKafka44(), processor.AckAfterCommit: StockKafka44()} {
		t.Run(g.String(), func(t *testing.T) {
			testkit.Deadline(t, 2*time.Minute)
			synctest.Test(t, func(t *testing.T) {
				k := Start(t, brokers, Topic("in", 2), Topic("out", 2), Topic("dead", 1))
				k.ReadAlong(t, "out", "dead")
				k.Inject(t, Fault{Key: EndTxnKey, Nth: 1, Action: LoseAnswer()})
				k.Calm()
				serve(t, k, g, processor.DeadLetter{Topic: "dead"}, "a", "b", "skip", "bad", "c")
				e := Expect{
					Group: "g", Guarantee: check.Guarantee(g.String()), Outputs: []string{"out", "dead"}, DeadLetters: []string{"dead"}, Source: source, Bound: time.Minute,
					Want: func(in *kgo.Record) int {
						if v := string(in.Value); v == "skip" || v == "bad" {
							return 0
						}
						return 1
					},
				}
				report := k.AssertHistory(t, e)
				if len(report.Unjudged) > 0 || report.Acknowledged == 0 || report.Outputs != 4 {
					t.Errorf("%v", report)
				}
				h := k.History(t, e)
				var file bytes.Buffer
				if err := h.Write(&file); err != nil {
					t.Fatal(err)
				}
				again, err := check.ReadHistory(&file)
				if err != nil {
					t.Fatal(err)
				}
				if got := check.Judge(again); !reflect.DeepEqual(got, report) {
					t.Errorf("as a file\n%v\nwant\n%v", got, report)
				}
			})
		})
	}
}

// What is wrong is found by what outputs say of themselves, where the brokers saw
// nothing wrong.
func TestAssertHistoryFails(t *testing.T) {
	all := func(*kgo.Record) int { return 1 }
	for name, tc := range map[string]struct {
		guarantee processor.Guarantee
		dead      processor.DeadLetter
		expect    Expect
		want      []string
	}{
		"an output is missing, staged": {
			guarantee: processor.Staged, dead: processor.DeadLetter{Topic: "dead"}, expect: Expect{Source: source, Want: all},
			want: []string{"I1 partial: in-0 offset 1: 0 of its 1 outputs are visible by transaction"},
		},
		"an output is missing, ledger": {
			guarantee: processor.Ledger, dead: processor.DeadLetter{Topic: "dead"}, expect: Expect{Source: source, Want: all},
			want: []string{"I1 partial: in-0 offset 1: 0 of its 1 outputs are visible by transaction"},
		},
		"an output is missing, at least once": {
			guarantee: processor.AckAfterCommit, dead: processor.DeadLetter{Topic: "dead"}, expect: Expect{Source: source, Want: all, Guarantee: check.GuaranteeAckAfterCommit},
			want: []string{"I1 lost: in-0 offset 1: acknowledged, and no visible output names it"},
		},
		"no output says what it is of": {
			guarantee: processor.AckAfterCommit, dead: processor.DeadLetter{Topic: "dead"}, expect: Expect{Guarantee: check.GuaranteeAckAfterCommit},
			want: []string{"group g acknowledged nothing", "I1 lost: in-0 offsets 0 to 1: acknowledged, and no visible output names it"},
		},
		"a dead letter is missing": {
			guarantee: processor.Staged, dead: processor.DeadLetter{Discard: true}, expect: Expect{DeadLetters: []string{"dead"}},
			want: []string{"I2 letter: in-0 offset 2: rejected, and there is no dead letter of it"},
		},
		"not in the bound": {
			guarantee: processor.Staged, dead: processor.DeadLetter{Topic: "dead"}, expect: Expect{Bound: time.Nanosecond},
			want: []string{"I9 slow: all was done"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Deadline(t, 2*time.Minute)
			synctest.Test(t, func(t *testing.T) {
				failed, _ := verdict(t, func(t testing.TB) {
					opts := []Opt{Topic("in", 1), Topic("out", 1), Topic("dead", 1)}
					if tc.guarantee != processor.Staged {
						opts = append(opts, StockKafka44())
					}
					k := Start(t, opts...)
					k.Calm()
					serve(t, k, tc.guarantee, tc.dead, "a", "skip", "bad")
					tc.expect.Group = "g"
					k.AssertHistory(t, tc.expect)
				})
				wantText(t, "failures", failed, tc.want...)
			})
		})
	}
}

// A dead letter's headers say which record it is of, or nothing.
func TestLetterSource(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	letter := func(values ...string) *kgo.Record {
		r := &kgo.Record{}
		for i, key := range []string{processor.HeaderTopic, processor.HeaderPartition, processor.HeaderOffset}[:len(values)] {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(values[i])})
		}
		return r
	}
	if got, ok := LetterSource(letter("in", "3", "77")); !ok || got != (Origin{Topic: "in", Partition: 3, Offset: 77}) {
		t.Errorf("%+v, %v", got, ok)
	}
	for _, bad := range [][]string{nil, {"in"}, {"in", "3"}, {"in", "x", "77"}, {"in", "3", "x"}, {"", "3", "77"}} {
		if got, ok := LetterSource(letter(bad...)); ok {
			t.Errorf("%s: %+v", strings.Join(bad, ","), got)
		}
	}
}
