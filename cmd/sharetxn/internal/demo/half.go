package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/audit"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// result is what a run came to.
type result struct {
	pattern pattern
	profile string
	input   [][]byte
	audit   *audit.Report
	tally   faults.Tally
	unfired []string // faults that did not fire as often as they had to
	aborts  int      // transactions that the coordinator aborted
	took    time.Duration
}

var errDrained = errors.New("nothing is left")

// metadataMinAge lets clients find a moved leader at once.
const metadataMinAge = 10 * time.Millisecond

// run runs the input through a cluster of its own, in one pattern, and audits
// it.
func run(ctx context.Context, cfg Config, p pattern, logger *slog.Logger, input func() ([][]byte, error)) (*result, error) {
	b, err := start(cfg.Profile, logger)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...), kgo.ClientID("demo"), kgo.MetadataMinAge(metadataMinAge), kgo.DisableClientMetrics()), sharetxn.WithProfile(cfg.Profile), sharetxn.Logger(logger))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	caps, err := cl.Capabilities(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(cfg.Stderr, "embedded cluster: brokers %s, profile %s\n", strings.Join(b.Seeds(), ","), caps.Staging)
	fmt.Fprintf(cfg.Stderr, "%v: %d members, %d records a transaction, faults %v, seed %d; shortened: locks %v, transaction timeout %v\n", p, cfg.Members, cfg.Batch, cfg.Faults, cfg.Seed, lock, txnTimeout)
	client, err := cl.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer client.Close()

	res := &result{pattern: p, profile: caps.Staging.String()}
	if res.input, err = input(); err != nil {
		return nil, err
	}
	if len(res.input) == 0 {
		return nil, errors.New("input: no record, so that there is nothing to audit")
	}
	plan := faults.New(cfg.Faults, cfg.Seed, len(res.input))
	count := &counts{}
	started := time.Now()
	w := &watch{
		cfg: cfg, lines: res.input, piece: piece(cfg, len(res.input), len(plan.Strikes)), stall: stallLimit,
		count: count, client: client, admin: kadm.NewClient(client),
		aborts: func() (int, error) { return aborted(ctx, b) },
	}
	if err := res.work(ctx, cfg, b, w, plan, logger); err != nil {
		return nil, err
	}
	res.took = time.Since(started)
	gone(ctx, w.admin)
	res.tally, _ = w.director.sofar()
	if res.unfired = res.tally.Unfired(cfg.Faults); len(res.unfired) > 0 && !cfg.Bundled {
		fmt.Fprintf(cfg.Stderr, "the input is too short for all faults; fired: %v\n", res.tally)
		res.unfired = nil
	}
	if res.aborts, err = w.aborts(); err != nil {
		return nil, err
	}
	fmt.Fprintln(cfg.Stderr, w.progress(res.took, res.aborts))
	ctx, cancel := context.WithTimeout(ctx, auditLimit)
	defer cancel()
	res.audit, err = audit.Run(ctx, audit.Config{
		Seeds: b.Seeds(), Group: group, Topics: topics, Input: res.input, Commits: count.committed.Load(),
		Inside: func(ctx context.Context) (audit.Inside, error) { return inside(ctx, b, p) },
	})
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return res, nil
}

// piece is how many records to feed at once while faults are to come: about what
// the members commit in one go, and little enough that the input lasts.
func piece(cfg Config, input, strikes int) int {
	return max(1, min(cfg.Batch*cfg.Members, input/(4*max(1, strikes))))
}

// work runs the members until the brokers say that nothing is left.
func (res *result) work(ctx context.Context, cfg Config, b *broker.Cluster, w *watch, plan faults.Plan, logger *slog.Logger) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	tell := func(s string) { fmt.Fprintln(cfg.Stderr, s) }
	w.director = newDirector(b, res.pattern, plan, tell, stop)
	h := newHandler(plan, w.director.handlerFired)
	f := newFleet(cfg, res.pattern, b.Seeds(), w.count, h, logger, stop)
	w.director.fleet = f
	b.SetIntercept(func(r broker.Request) broker.Action { return w.director.intercept(ctx, r) })
	defer b.SetIntercept(nil)
	if err := f.startAll(ctx); err != nil {
		stop(err)
	} else if err := w.run(ctx); err != nil {
		stop(err)
	}
	stop(errDrained)
	f.wait()
	if err := context.Cause(ctx); !errors.Is(err, errDrained) {
		return err
	}
	return nil
}
