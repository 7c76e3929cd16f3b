package differential

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/sharetxn/sharetxn/integration/conformance"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// side is one of the two clusters, with a topic and a group that only one list
// works on.
type side struct {
	x       *conformance.X
	topic   conformance.Topic
	group   string
	leader  int32
	members []*byhand.Member
	inside  []map[byhand.Partition]bool // what each member's session holds
	txns    *kgo.Client                 // made when it is first used
	ends    [partitions]int64
	unseen  [partitions]bool // the group has passed over aborted records, or will
	commits bool             // it reads committed
	values  int
}

// lock is so long that none ends while a list runs.
const lock = "60000"

func newSide(ctx context.Context, x *conformance.X, isolation string) *side {
	s := &side{x: x, topic: x.Topic(ctx, partitions), group: x.Group(ctx, "share.record.lock.duration.ms="+lock, "share.isolation.level="+isolation), commits: isolation == "read_committed"}
	s.leader = x.Leader(ctx, s.topic, 0)
	for range members {
		m := x.Member(s.group, s.topic.Name)
		// Known to the group, so that offsets can be asked for; a fetch needs no
		// assignment.
		resp, err := m.Join(ctx)
		x.Must(err)
		x.Same("code of joining", resp.ErrorCode, int16(0))
		s.members = append(s.members, m)
		s.inside = append(s.inside, make(map[byhand.Partition]bool))
	}
	// Before its state is made, a share partition answers errors.
	testkit.Eventually(ctx, x, "the group has all partitions", func() bool {
		d, err := x.Adm.DescribeShareGroupOffsets(ctx, s.group)
		return err == nil && len(d[s.group].Offsets[s.topic.Name]) == partitions
	})
	return s
}

// end removes what would only cost the clusters memory.
func (s *side) end(ctx context.Context) {
	if s.txns != nil {
		s.txns.Close()
	}
	_, _ = s.x.Adm.DeleteTopics(ctx, s.topic.Name) // the next list has its own
}

// answer is what an operation had for an answer, as text to be compared, and
// what it gave and took.
type answer struct {
	text string // codes
	got  string // what a fetch brought

	acquired []byhand.Acquired
	records  map[int64]string // values of what was acquired
	taken    bool             // the acknowledgements
	fine     bool             // a fetch that refused nothing
}

func (a answer) same(b answer) bool { return a.text == b.text && a.got == b.got }

func (a answer) String() string { return a.text + " " + a.got }

// bring fills in what a fetch brought.
func (a *answer) bring(acquired []byhand.Acquired, records map[int64]string) {
	a.acquired, a.records, a.got = acquired, records, runs(acquired)
	for _, at := range slices.Sorted(maps.Keys(records)) {
		a.got += fmt.Sprintf(" %d=%s", at, records[at])
	}
}

// do runs one operation; acks are its ranges as offsets.
func (s *side) do(ctx context.Context, o Op, acks []byhand.Ack) (answer, error) {
	p := s.topic.Part(int32(o.Partition))
	switch o.Verb {
	case Produce:
		return answer{text: "done"}, s.produce(ctx, s.x.Client, o)
	case Commit, Abort:
		return answer{text: "done"}, s.transact(ctx, o)
	case Fetch, FetchAck:
		return s.fetch(ctx, o, p, acks)
	case Ack, Renew:
		got, err := s.members[o.Member].Session(s.leader).Acknowledge(ctx, map[byhand.Partition][]byhand.Ack{p: acks}, o.Verb == Renew)
		return acknowledged(got, p), err
	case Close:
		var with map[byhand.Partition][]byhand.Ack
		if len(acks) > 0 {
			with = map[byhand.Partition][]byhand.Ack{p: acks}
		}
		got, err := s.members[o.Member].Session(s.leader).CloseSession(ctx, with)
		clear(s.inside[o.Member])
		return acknowledged(got, p), err
	case Astray:
		return s.astray(ctx, o, p)
	case Describe:
		return s.describe(ctx, o)
	}
	return answer{}, fmt.Errorf("verb %q", o.Verb)
}

func (s *side) records(o Op) (rs []*kgo.Record) {
	for range o.N {
		s.values++
		rs = append(rs, &kgo.Record{Topic: s.topic.Name, Partition: int32(o.Partition), Value: fmt.Append(nil, s.values)})
	}
	return rs
}

func (s *side) produce(ctx context.Context, cl *kgo.Client, o Op) error {
	s.ends[o.Partition] += int64(o.N)
	return cl.ProduceSync(ctx, s.records(o)...).FirstErr()
}

// transact ends when the marker is written: what comes after it has its offset
// behind it.
func (s *side) transact(ctx context.Context, o Op) error {
	if s.txns == nil {
		cl, err := kgo.NewClient(kgo.SeedBrokers(s.x.Target.Seeds()...), kgo.TransactionalID(s.x.Fresh("id")),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ConcurrentTransactionsBackoff(5*time.Millisecond))
		if err != nil {
			return err
		}
		s.txns = cl
	}
	if err := s.txns.BeginTransaction(); err != nil {
		return err
	}
	if err := s.produce(ctx, s.txns, o); err != nil {
		return err
	}
	if err := s.txns.EndTransaction(ctx, kgo.TransactionEndTry(o.Verb == Commit)); err != nil {
		return err
	}
	s.ends[o.Partition]++
	s.unseen[o.Partition] = s.unseen[o.Partition] || (s.commits && o.Verb == Abort)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		stable, err := s.x.Adm.ListCommittedOffsets(ctx, s.topic.Name)
		if err != nil {
			return err
		}
		if at, ok := stable.Lookup(s.topic.Name, int32(o.Partition)); ok && at.Offset == s.ends[o.Partition] {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the marker never came: %w", context.Cause(ctx))
		}
	}
}

// fetch leaves the partition alone in the session.
func (s *side) fetch(ctx context.Context, o Op, p byhand.Partition, acks []byhand.Ack) (answer, error) {
	f := byhand.NewFetch()
	f.MaxWait, f.MaxRecords, f.BatchSize, f.RecordLimit = 50, int32(o.N), 500, o.Limit
	inside := s.inside[o.Member]
	if !inside[p] {
		f.Partitions = []byhand.Partition{p}
	}
	for other := range inside {
		if other != p {
			f.Forget = append(f.Forget, other)
		}
	}
	if len(acks) > 0 {
		f.Acks = map[byhand.Partition][]byhand.Ack{p: acks}
	}
	got, err := s.members[o.Member].Session(s.leader).Fetch(ctx, f)
	if err != nil {
		return answer{}, err
	}
	if got.Code == 0 {
		clear(inside)
		inside[p] = true
	}
	part := got.Parts[p]
	if part.Undecodable != nil {
		return answer{}, part.Undecodable
	}
	out := answer{
		text:  fmt.Sprintf("code=%d part=%d ack=%v", got.Code, part.Code, part.AckCode),
		taken: got.Code == 0 && part.AckCode == 0, fine: got.Code == 0 && part.Code == 0,
	}
	out.bring(part.Acquired, values(part))
	return out, nil
}

// runs joins neighbours of one count: where a broker cuts ranges is its own
// affair.
func runs(in []byhand.Acquired) string {
	in = slices.Clone(in)
	slices.SortFunc(in, func(a, b byhand.Acquired) int { return int(a.First - b.First) })
	var out []byhand.Acquired
	for _, a := range in {
		if n := len(out); n > 0 && out[n-1].Last+1 == a.First && out[n-1].Count == a.Count {
			out[n-1].Last = a.Last
			continue
		}
		out = append(out, a)
	}
	var b strings.Builder
	for _, a := range out {
		fmt.Fprintf(&b, "[%d-%d]x%d", a.First, a.Last, a.Count)
	}
	return b.String()
}

// values are those of the acquired records; what else was sent is a broker's own
// affair.
func values(part byhand.FetchedPart) map[int64]string {
	out := make(map[int64]string)
	for _, r := range part.Records {
		if slices.ContainsFunc(part.Acquired, func(a byhand.Acquired) bool { return a.First <= r.Offset && r.Offset <= a.Last }) && !r.Attrs.IsControl() {
			out[r.Offset] = string(r.Value)
		}
	}
	return out
}

func acknowledged(got byhand.Acknowledged, p byhand.Partition) answer {
	code, there := got.Parts[p]
	return answer{text: fmt.Sprintf("code=%d part=%v there=%v", got.Code, code, there), taken: got.Code == 0 && code == 0}
}

// astray fetches at an epoch that is not the session's, and comes back.
func (s *side) astray(ctx context.Context, o Op, p byhand.Partition) (answer, error) {
	session := s.members[o.Member].Session(s.leader)
	epoch := session.Epoch
	if epoch+int32(o.N) <= 0 {
		return answer{text: "not done"}, nil // it would open or close a session
	}
	session.Epoch += int32(o.N)
	f := byhand.NewFetch(p)
	f.MaxRecords, f.MaxWait = 0, 0
	got, err := session.Fetch(ctx, f)
	session.Epoch = epoch
	return answer{text: fmt.Sprintf("code=%d", got.Code)}, err
}

// describe leaves out where exactly a share partition starts: brokers tell it from
// the last write, which may lie back (measured); so does the lag where aborted
// records were passed over.
func (s *side) describe(ctx context.Context, o Op) (answer, error) {
	d, err := s.x.Adm.DescribeShareGroupOffsets(ctx, s.group)
	if err != nil {
		return answer{}, err
	}
	g := d[s.group]
	at, ok := g.Offsets.Lookup(s.topic.Name, int32(o.Partition))
	lag := fmt.Sprint(at.Lag)
	if s.unseen[o.Partition] {
		lag = "?"
	}
	return answer{text: fmt.Sprintf("group=%v there=%v started=%v lag=%s err=%v", g.Err, ok, at.StartOffset >= 0, lag, at.Err)}, nil
}
