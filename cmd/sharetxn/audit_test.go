package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// One partition of few inputs: the member that died stays in the group until its
// session ends, and with more partitions than members the others would wait for
// what is assigned to it.
const records = 3

// inputs are the values of all inputs of a case.
func inputs() (out []string) {
	for i := range records {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// audit feeds a case and looks, as anybody can, at what became of it.
type audit struct {
	ctx    context.Context
	t      *testing.T
	job    job
	cl     *sharetxn.Cluster
	feeder *kgo.Client
}

func observe(ctx context.Context, t *testing.T, j job) *audit {
	t.Helper()
	cl, err := j.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	k, err := cl.Client(kgo.DefaultProduceTopic(j.in()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return &audit{ctx: ctx, t: t, job: j, cl: cl, feeder: k}
}

// feed gives the case its ledger, if it needs one, and its inputs.
func (a *audit) feed() {
	a.t.Helper()
	if a.job.Guarantee == processor.Ledger {
		if err := ledger.Ensure(a.ctx, a.cl, a.job.Case, []string{a.job.in()}); err != nil {
			a.t.Fatal(err)
		}
	}
	for _, v := range inputs() {
		if err := a.feeder.ProduceSync(a.ctx, kgo.StringRecord(v)).FirstErr(); err != nil {
			a.t.Fatal(err)
		}
	}
}

// lag is how many inputs are not done for the group, as its coordinator tells.
func (a *audit) lag() (lag int64) {
	a.t.Helper()
	groups, err := kadm.NewClient(a.feeder).DescribeShareGroupOffsets(a.ctx, a.job.Case)
	if err != nil {
		a.t.Fatal(err)
	}
	lag = records
	groups[a.job.Case].Offsets.Each(func(o kadm.ShareOffset) {
		if o.Lag >= 0 { // -1: nothing was written of it
			lag = o.Lag
		}
	})
	return lag
}

// done is how many are.
func (a *audit) done() int { return records - int(a.lag()) }

// drained waits until all inputs are done, by a service that goes on meanwhile.
func (a *audit) drained(by *service) {
	a.t.Helper()
	for a.lag() > 0 {
		select {
		case err := <-by.ended:
			a.t.Fatalf("the service ended by itself: %v\n%s", err, by.output())
		default:
		}
		if !lapse.For(a.ctx, 20*time.Millisecond) {
			a.t.Fatalf("%d inputs are left\n%s", a.lag(), by.output())
		}
	}
}
