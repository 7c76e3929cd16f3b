package shareconsumer

import (
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Every state meets every event; what is not named here is refused.
func TestBatchStates(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	allowed := map[state]map[event]state{
		open:    {evHold: held, evPlain: open, evClose: settled},
		held:    {evFreeze: frozen, evReopen: open, evDrop: settled, evUnknown: held, evClose: held},
		frozen:  {evCommit: settled, evReopen: open, evDrop: settled, evUnknown: frozen, evClose: frozen},
		settled: {evClose: settled, evCommit: settled, evDrop: settled, evReopen: settled, evUnknown: settled},
	}
	for s := open; s <= settled; s++ {
		for e := evHold; e < events; e++ {
			want, ok := allowed[s][e]
			got, err := s.next(e)
			if ok != (err == nil) || (ok && got != want) {
				t.Errorf("%v on %v: %v, %v; want %v, allowed %v", s, e, got, err, want, ok)
			}
			if !ok && got != s {
				t.Errorf("%v on %v is refused and moves to %v", s, e, got)
			}
		}
	}
}

func TestHeartbeatReactions(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for code, want := range map[int16]reaction{
		0:                                   stay,
		kerr.CoordinatorLoadInProgress.Code: again,
		kerr.CoordinatorNotAvailable.Code:   seek,
		kerr.NotCoordinator.Code:            seek,
		kerr.RequestTimedOut.Code:           again,
		kerr.UnknownMemberID.Code:           rejoin,
		kerr.FencedMemberEpoch.Code:         rejoin,
		kerr.GroupIDNotFound.Code:           rejoin,
		kerr.TopicAuthorizationFailed.Code:  surface,
		kerr.GroupAuthorizationFailed.Code:  stop,
		kerr.InvalidRequest.Code:            stop,
		kerr.GroupMaxSizeReached.Code:       stop,
		kerr.UnsupportedAssignor.Code:       stop,
		kerr.UnsupportedVersion.Code:        stop,
		kerr.UnknownServerError.Code:        stop,
		4711:                                stop,
	} {
		if got := reactTo(code); got != want {
			t.Errorf("code %d: %v, want %v", code, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for name, c := range map[string]struct {
		v    view
		want action
	}{
		"nothing":                        {view{}, rest},
		"nobody polls":                   {view{wanted: true, room: true}, rest},
		"poll waits":                     {view{wanted: true, room: true, demand: true}, fetchRecords},
		"poll waits, after a dry fetch":  {view{wanted: true, room: true, demand: true, dry: true}, fetchRecords},
		"a fetch is unpolled":            {view{wanted: true, room: true, demand: true, buffered: true}, rest},
		"quick polls":                    {view{wanted: true, room: true, buffered: true, ahead: true}, fetchRecords},
		"quick polls, nothing came last": {view{wanted: true, room: true, buffered: true, ahead: true, dry: true}, rest},
		"memory is full":                 {view{wanted: true, buffered: true, ahead: true}, rest},
		"memory is full, a poll waits":   {view{wanted: true, demand: true, ahead: true}, fetchRecords},
		"after a failure":                {view{wanted: true, room: true, demand: true, ahead: true, paused: true}, rest},
		"nothing assigned":               {view{demand: true, room: true, ahead: true}, rest},
		"lazy alone":                     {view{lazy: true}, sendAcks},
		"lazy rides":                     {view{lazy: true, wanted: true, room: true, demand: true}, fetchRecords},
		"lazy waits for a fetch":         {view{lazy: true, soon: true, wanted: true, room: true, buffered: true}, rest},
		"lazy waits for no dry one":      {view{lazy: true, soon: true, dry: true, wanted: true, room: true, buffered: true}, sendAcks},
		"lazy rides in advance":          {view{lazy: true, wanted: true, room: true, ahead: true}, fetchRecords},
		"lazy goes before a dry fetch":   {view{lazy: true, wanted: true, room: true, demand: true, dry: true}, sendAcks},
		"lazy does not wait for pauses":  {view{lazy: true, wanted: true, room: true, demand: true, paused: true}, sendAcks},
		"lazy does not wait for memory":  {view{lazy: true, wanted: true, buffered: true, ahead: true}, sendAcks},
		"urgent before fetch":            {view{urgent: true, wanted: true, room: true, demand: true}, sendAcks},
		"locks first":                    {view{renewals: true, urgent: true, wanted: true, room: true, demand: true}, sendRenew},
		"closing beats all":              {view{closing: true, renewals: true, urgent: true, wanted: true, room: true, demand: true}, shut},
	} {
		if got := choose(c.v); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestSanitise(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	type r = kmsg.ShareFetchResponseTopicPartitionAcquiredRecord
	for name, c := range map[string]struct {
		in   []r
		want []span
	}{
		"ordered":           {[]r{{FirstOffset: 1, LastOffset: 2, DeliveryCount: 1}, {FirstOffset: 5, LastOffset: 5, DeliveryCount: 3}}, []span{{1, 2, 1}, {5, 5, 3}}},
		"unordered":         {[]r{{FirstOffset: 5, LastOffset: 5, DeliveryCount: 3}, {FirstOffset: 1, LastOffset: 2, DeliveryCount: 1}}, []span{{1, 2, 1}, {5, 5, 3}}},
		"inverted":          {[]r{{FirstOffset: 5, LastOffset: 4, DeliveryCount: 3}}, nil},
		"negative":          {[]r{{FirstOffset: -1, LastOffset: 4, DeliveryCount: 3}}, nil},
		"overlap, larger":   {[]r{{FirstOffset: 1, LastOffset: 5, DeliveryCount: 2}, {FirstOffset: 3, LastOffset: 8, DeliveryCount: 4}}, []span{{1, 8, 4}}},
		"inside":            {[]r{{FirstOffset: 1, LastOffset: 9, DeliveryCount: 2}, {FirstOffset: 3, LastOffset: 4, DeliveryCount: 1}}, []span{{1, 9, 2}}},
		"count less than 1": {[]r{{FirstOffset: 1, LastOffset: 1, DeliveryCount: 0}}, []span{{1, 1, 1}}},
	} {
		if got := sanitise(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestSift(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	records := func(offsets ...int64) (out []*kgo.Record) {
		for _, o := range offsets {
			out = append(out, &kgo.Record{Offset: o})
		}
		return out
	}
	for name, c := range map[string]struct {
		records []int64
		spans   []span
		ours    []int64
		holes   []extent
	}{
		"all ours":            {[]int64{0, 1, 2}, []span{{0, 2, 1}}, []int64{0, 1, 2}, nil},
		"others' around":      {[]int64{0, 1, 2, 3}, []span{{1, 2, 1}}, []int64{1, 2}, nil},
		"others' between":     {[]int64{0, 1, 2, 3}, []span{{0, 0, 1}, {3, 3, 2}}, []int64{0, 3}, nil},
		"hole inside":         {[]int64{0, 3}, []span{{0, 3, 1}}, []int64{0, 3}, []extent{{1, 2}}},
		"marker at the end":   {[]int64{0}, []span{{0, 1, 1}}, []int64{0}, []extent{{1, 1}}},
		"marker first":        {[]int64{5}, []span{{4, 5, 1}}, []int64{5}, []extent{{4, 4}}},
		"no record at all":    {nil, []span{{4, 9, 1}}, nil, []extent{{4, 9}}},
		"holes in two ranges": {[]int64{1, 6}, []span{{0, 1, 1}, {5, 6, 1}}, []int64{1, 6}, []extent{{0, 0}, {5, 5}}},
	} {
		ours, holes := sift(records(c.records...), c.spans)
		var offsets []int64
		if len(ours) != len(c.spans) {
			t.Fatalf("%s: %d ranges, want %d", name, len(ours), len(c.spans))
		}
		for i, rs := range ours {
			for _, r := range rs {
				offsets = append(offsets, r.Offset)
				if r.Offset < c.spans[i].first || c.spans[i].last < r.Offset {
					t.Errorf("%s: offset %d is given as of %+v", name, r.Offset, c.spans[i])
				}
			}
		}
		if !slices.Equal(offsets, c.ours) || !slices.Equal(holes, c.holes) {
			t.Errorf("%s: ours %v, holes %v", name, offsets, holes)
		}
	}
}

func TestBisectReachesSingleOffsets(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	var singles []int64
	var walk func([]acks.Run)
	walk = func(rs []acks.Run) {
		a, b, ok := bisect(rs)
		if !ok {
			if len(rs) != 1 || rs[0].First != rs[0].Last || rs[0].Type != acks.Accept {
				t.Fatalf("cannot be halved: %v", rs)
			}
			singles = append(singles, rs[0].First)
			return
		}
		walk(a)
		walk(b)
	}
	walk([]acks.Run{{First: 3, Last: 7, Type: acks.Accept}, {First: 9, Last: 9, Type: acks.Accept}})
	if want := []int64{3, 4, 5, 6, 7, 9}; !slices.Equal(singles, want) {
		t.Fatalf("%v, want %v", singles, want)
	}
}
