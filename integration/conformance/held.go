package conformance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// held is a member with a session that has acquired records of partition 0 of a
// topic of its own.
type held struct {
	*X
	topic Topic
	part  byhand.Partition
	group string
	m     *byhand.Member
	s     *byhand.Session
}

// Held feeds n records in one batch and has a member acquire all of them;
// configs are the group's, "key=value".
func (x *X) Held(ctx context.Context, n int, configs ...string) *held {
	x.Helper()
	h := x.Fed(ctx, n, configs...)
	x.Same("acquired at first", h.first(ctx), span(0, n-1, 1))
	return h
}

// Fed is Held before anything is acquired, with an open session.
func (x *X) Fed(ctx context.Context, n int, configs ...string) *held {
	x.Helper()
	t, group := x.Topic(ctx, 1), x.Group(ctx, configs...)
	x.Feed(ctx, t, 0, n)
	return x.Holder(ctx, group, t)
}

// Holder joins another member to a group and gives it as held; it has acquired
// nothing yet.
func (x *X) Holder(ctx context.Context, group string, t Topic) *held {
	x.Helper()
	m := x.Joined(ctx, group, 1, t.Name)
	return &held{x, t, t.Part(0), group, m, m.Session(x.Leader(ctx, t, 0))}
}

// first fetches until records are handed out and gives what was acquired.
func (h *held) first(ctx context.Context) string {
	h.Helper()
	return acquiredText(h.Until(ctx, h.s, byhand.NewFetch(h.part), h.part).Acquired)
}

// gather fetches until n offsets were handed out, and gives all of them: what
// was acquired at once may expire piece by piece.
func (h *held) gather(ctx context.Context, n int) string {
	h.Helper()
	var all []byhand.Acquired
	for have := 0; have < n; {
		for _, r := range h.Until(ctx, h.s, byhand.NewFetch(h.part), h.part).Acquired {
			all = append(all, r)
			have += int(r.Last - r.First + 1)
		}
	}
	slices.SortFunc(all, func(a, b byhand.Acquired) int { return cmp.Compare(a.First, b.First) })
	return acquiredText(all)
}

// again fetches once with the session and gives what was acquired, "" for
// nothing: what is available at the time of the fetch is handed out at once.
func (h *held) again(ctx context.Context) string { return h.againWith(ctx, byhand.NewFetch(h.part)) }

func (h *held) againWith(ctx context.Context, f byhand.Fetch) string {
	h.Helper()
	got, err := h.s.Fetch(ctx, f)
	h.Must(err)
	if code := got.Parts[h.part].Code; got.Code != 0 || code != 0 {
		h.Fatalf("fetch: codes %d and %d", got.Code, code)
	}
	return acquiredText(got.Parts[h.part].Acquired)
}

// configure sets configs of the holder's group and waits until they are in
// effect: Kafka shows them a little earlier. What tells it is the lock, which is
// set with them.
func (h *held) configure(ctx context.Context, configs ...string) {
	h.Helper()
	const lock = "share.record.lock.duration.ms="
	i := slices.IndexFunc(configs, func(c string) bool { return strings.HasPrefix(c, lock) })
	if i < 0 {
		i = len(configs)
		configs = append(configs, lock+"31000")
	}
	h.GroupConfigs(ctx, h.group, configs...)
	testkit.Eventually(ctx, h, configs[i]+" is in effect", func() bool {
		got, err := h.s.Acknowledge(ctx, nil, false)
		h.Must(err)
		return lock+strconv.Itoa(int(got.LockMillis)) == configs[i]
	})
}

// ack sends acknowledgements of the partition alone and gives its code; the
// request itself must not be refused. See parseAcks.
func (h *held) ack(ctx context.Context, text string) int16 {
	h.Helper()
	return h.acked(ctx, text, false)
}

// renewing is ack with IsRenewAck set.
func (h *held) renewing(ctx context.Context, text string) int16 {
	h.Helper()
	return h.acked(ctx, text, true)
}

func (h *held) acked(ctx context.Context, text string, renew bool) int16 {
	h.Helper()
	got, err := h.s.Acknowledge(ctx, map[byhand.Partition][]byhand.Ack{h.part: parseAcks(text)}, renew)
	h.Must(err)
	code, told := got.Parts[h.part]
	if got.Code != 0 || !told {
		h.Fatalf("acknowledge %q: code %d, partition told: %v", text, got.Code, told)
	}
	return code
}

// ackNothing sends a ShareAcknowledge without any partition.
func (h *held) ackNothing(ctx context.Context) map[byhand.Partition]int16 {
	h.Helper()
	got, err := h.s.Acknowledge(ctx, nil, false)
	h.Must(err)
	h.Same("code of an empty acknowledgement", got.Code, int16(0))
	return got.Parts
}

// parseAcks reads "0..4:1 5:2 6..8:1,2,3": ranges with one type for all or one
// for each, in this order; "7:" has none. It is for literals of cases.
func parseAcks(text string) (out []byhand.Ack) {
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("acknowledgements %q: %v", text, err))
		}
		return n
	}
	for _, field := range strings.Fields(text) {
		offsets, types, _ := strings.Cut(field, ":")
		first, last, ranged := strings.Cut(offsets, "..")
		if !ranged {
			last = first
		}
		a := byhand.Ack{First: number(first), Last: number(last)}
		if types != "" {
			for t := range strings.SplitSeq(types, ",") {
				a.Types = append(a.Types, int8(number(t)))
			}
		}
		out = append(out, a)
	}
	return out
}

// acquiredText writes ranges as "0..9x1 10..10x2": offsets and delivery counts,
// neighbours with the same count joined, since where ranges are cut is the
// broker's own business.
func acquiredText(rs []byhand.Acquired) string {
	var joined []byhand.Acquired
	for _, r := range rs {
		if n := len(joined); n > 0 && joined[n-1].Last+1 == r.First && joined[n-1].Count == r.Count {
			joined[n-1].Last = r.Last
		} else {
			joined = append(joined, r)
		}
	}
	var out []string
	for _, r := range joined {
		out = append(out, span(int(r.First), int(r.Last), int(r.Count)))
	}
	return strings.Join(out, " ")
}

func span(first, last, count int) string { return fmt.Sprintf("%d..%dx%d", first, last, count) }
