package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/audit"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/link"
	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// result is what a run came to.
type result struct {
	guarantee processor.Guarantee
	profile   string
	input     [][]byte
	audit     *audit.Report
	tally     faults.Tally
	unfired   []string // faults that did not fire as often as they had to
	aborts    int
	ledger    *Ledger // nil: none was used
	took      time.Duration
}

var errDrained = errors.New("nothing is left")

// metadataMinAge lets clients find a moved leader at once.
const metadataMinAge = 10 * time.Millisecond

// open gives the cluster of a run.
func open(cfg Config, tell func(string), logger *slog.Logger) (site, error) {
	if len(cfg.Bootstrap) > 0 {
		return newRemote(cfg, tell), nil
	}
	return start(cfg.Guarantee, cfg.Profile, logger)
}

// run runs the input through topics of its own, with the guarantee of cfg, and
// audits it.
func run(ctx context.Context, cfg Config, logger *slog.Logger, input func() ([][]byte, error)) (res *result, err error) {
	tell := func(s string) { fmt.Fprintln(cfg.Stderr, s) }
	at, err := open(cfg, tell, logger)
	if err != nil {
		return nil, err
	}
	defer at.close()
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(at.seeds()...), kgo.ClientID("demo"), kgo.MetadataMinAge(metadataMinAge), kgo.DisableClientMetrics()), sharetxn.WithProfile(cfg.Profile), sharetxn.Logger(logger))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	profile, err := proven(ctx, cl, cfg.Guarantee)
	if err != nil {
		return nil, err
	}
	client, err := cl.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	defer func() {
		if left := at.remove(); left != nil {
			res, err = nil, errors.Join(err, left)
		}
	}()
	now, err := at.prepare(ctx, cl, client)
	if err != nil {
		return nil, err
	}
	if cfg.Guarantee == processor.Ledger {
		if err := ledger.Ensure(ctx, cl, at.names().group, []string{at.names().Source}); err != nil {
			return nil, err
		}
	}
	tell(fmt.Sprintf("%v; profile %s", at, profile))
	tell(fmt.Sprintf("%v: %d members, %d records a transaction, faults %v, seed %d; locks %v, transaction timeout %v, sessions %v", cfg.Guarantee, cfg.Members, cfg.Batch, cfg.Faults, cfg.Seed, now.lock, now.txn, now.session))
	lines, err := input()
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, errors.New("input: no record, so that there is nothing to audit")
	}
	w := &watch{cfg: cfg, lines: lines, site: at, times: now, count: &counts{}, client: client, admin: kadm.NewClient(client), tell: tell, log: logger}
	res = &result{guarantee: cfg.Guarantee, profile: profile, input: lines}
	if err := w.fill(ctx, res); err != nil {
		return nil, err
	}
	return res, nil
}

// fill runs the members over the input and says what it came to.
func (w *watch) fill(ctx context.Context, res *result) (err error) {
	plan := w.plan()
	started := time.Now()
	if err := w.work(ctx, plan); err != nil {
		return err
	}
	res.took = time.Since(started)
	w.gone(ctx)
	res.tally, _ = w.director.sofar()
	if res.unfired = res.tally.Unfired(w.cfg.Faults, plan.Left...); len(res.unfired) > 0 && !w.cfg.Bundled {
		w.tell(fmt.Sprintf("the input is too short for all faults; fired: %v", res.tally))
		res.unfired = nil
	}
	if res.aborts, err = w.aborts(ctx); err != nil {
		return err
	}
	if w.cfg.Guarantee == processor.Ledger {
		res.ledger = w.count.ledger()
	}
	w.tell(w.progress(res.took, res.aborts))
	ctx, cancel := context.WithTimeout(ctx, auditLimit)
	defer cancel()
	at := w.site.names()
	res.audit, err = audit.Run(ctx, audit.Config{
		Seeds: w.site.seeds(), Group: at.group, Topics: at.Topics, Ours: at.prefix, Input: w.lines, Commits: w.count.committed.Load(),
		Doubles: doubles(w.cfg.Guarantee), Inside: w.site.inside,
	})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// plan is what is to go wrong, as far as it can there.
func (w *watch) plan() faults.Plan {
	p := faults.New(w.cfg.Faults, w.cfg.Seed, len(w.lines))
	if why := w.site.unmovable(); why != "" && w.cfg.Faults != faults.Off {
		w.tell(fmt.Sprintf("fault %v is left out: %s", faults.LeaderMove, why))
		p = p.Without(faults.LeaderMove)
	}
	return p
}

// proven gives the profile of staging that brokers have proven, by name. Where
// that is none a guarantee that needs one is refused.
func proven(ctx context.Context, cl *sharetxn.Cluster, g processor.Guarantee) (string, error) {
	caps, err := cl.Capabilities(ctx)
	if err != nil {
		return "", err
	}
	if g == processor.Staged && !caps.SupportsStaging() {
		return "", fmt.Errorf("%w: --guarantee=%v is the demo's default, and needs KIP-1289; on these brokers use --guarantee=%v", &sharetxn.UnsupportedError{Found: caps}, g, processor.Ledger)
	}
	return caps.Staging.String(), nil
}

// doubles says why outputs may be there more than once; empty if they may not.
func doubles(g processor.Guarantee) string {
	if g == processor.AckAfterCommit {
		return g.String() + " promises at least once: what fails between commit and acknowledgement is done again"
	}
	return ""
}

// newReader reads requests about a source topic.
func newReader(ctx context.Context, cfg Config, admin *kadm.Client, source string) (reader, error) {
	r := reader{guarantee: cfg.Guarantee, profile: wire.None}
	if cfg.Guarantee == processor.Staged {
		r.profile = spoken(cfg.Profile)
	}
	topics, err := admin.ListTopics(ctx, source)
	if err = errors.Join(err, topics.Error()); err != nil {
		return r, fmt.Errorf("topic %s: %w", source, err)
	}
	r.source = topics[source].ID
	return r, nil
}

// piece is how many records to feed at once while faults are to come: about what
// the members commit in one go, and little enough that the input lasts.
func piece(cfg Config, input, strikes int) int {
	return max(1, min(cfg.Batch*cfg.Members, input/(4*max(1, strikes))))
}

// work runs the members until the brokers say that nothing is left.
func (w *watch) work(ctx context.Context, plan faults.Plan) error {
	r, err := newReader(ctx, w.cfg, w.admin, w.site.names().Source)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	d := newDirector(w.site, r, plan, w.tell, stop)
	w.director, w.piece, w.stall = d, piece(w.cfg, len(w.lines), len(plan.Strikes)), w.times.stall()
	f := newFleet(w.cfg, w.site, w.times, w.count, newHandler(w.site.names().Topics, plan, d.handlerFired), w.log, stop)
	f.watch = func(p *process, q frame.Request) link.Fate { return d.watch(ctx, p, q) }
	d.fleet = f
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
