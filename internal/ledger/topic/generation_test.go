package topic_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Whether the partitions of a ledger agree, and what to do where they do not.
func TestCurrent(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	says := func(g entry.Generation) topic.State { return topic.State{Generation: g} }
	one, two := says(active(1, "ledger")), says(active(2, "ledger"))
	used := one
	used.Newest = 1
	for name, tc := range map[string]struct {
		states  topic.States
		want    entry.Generation
		err     error
		text    string
		remedy  string
		lacking []int32
	}{
		"all agree":       {topic.States{one, used, one}, active(1, "ledger"), nil, "", "", nil},
		"of an older one": {topic.States{two, {Generation: active(2, "ledger"), Newest: 1}}, active(2, "ledger"), nil, "", "", nil},
		"none at all":     {topic.States{{}, {}}, entry.Generation{}, topic.ErrNoGeneration, "", "create", []int32{0, 1}},
		"no partitions":   {topic.States{}, entry.Generation{}, topic.ErrNoGeneration, "", "create", nil},
		"widened":         {topic.States{one, one, {}}, active(1, "ledger"), topic.ErrNoGeneration, "partitions [2], and 1 in others", "create", []int32{2}},
		"two numbers":     {topic.States{one, two}, active(2, "ledger"), topic.ErrMixed, "partition 0 says 1 active for guarantee ledger, another 2 active", "reset", nil},
		"two guarantees":  {topic.States{two, says(active(2, "staged"))}, active(2, "staged"), topic.ErrMixed, "guarantee ledger, another 2 active for guarantee staged", "reset", nil},
		"all resetting":   {topic.States{says(resetting(2)), says(resetting(2))}, resetting(2), topic.ErrResetting, "generation 2", "reset", nil},
		"some resetting":  {topic.States{one, says(resetting(2)), {}}, resetting(2), topic.ErrResetting, "generation 2", "reset", []int32{2}},
		"some active":     {topic.States{says(resetting(2)), two}, active(2, "ledger"), topic.ErrMixed, "2 resetting for guarantee ledger, another 2 active", "reset", nil},
		"all moving":      {topic.States{says(moving(2)), says(moving(2))}, moving(2), topic.ErrMoving, "under staged", "move", nil},
		"some moving":     {topic.States{one, says(moving(2))}, moving(2), topic.ErrMoving, "under staged", "move", nil},
		"some moved":      {topic.States{says(active(2, "staged")), says(moving(2))}, active(2, "staged"), topic.ErrMixed, "2 resetting for guarantee staged, another 2 active", "reset", nil},
		"entries only":    {topic.States{{Newest: 3}, {}}, entry.Generation{}, topic.ErrMixed, "entries of generation 3, and the newest that it says is 0", "reset", []int32{0, 1}},
		"newer entries":   {topic.States{one, {Generation: active(1, "ledger"), Newest: 2}}, active(1, "ledger"), topic.ErrMixed, "entries of generation 2", "reset", nil},
	} {
		got, err := tc.states.Current()
		if got != tc.want || !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) || err != nil && !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %+v, %v, want %+v, %v", name, got, err, tc.want, tc.err)
		}
		if !slices.Equal(tc.states.Lacking(), tc.lacking) {
			t.Errorf("%s: lacking %v", name, tc.states.Lacking())
		}
		if err == nil {
			if remedy := topic.Remedy(group, err); remedy != "" {
				t.Errorf("%s: remedy %q", name, remedy)
			}
			continue
		}
		if err := topic.Unusable("Run", group, err); !sharetxn.IsFatal(err) || !errors.Is(err, tc.err) || !strings.Contains(err.Error(), "sharetxn ledger "+tc.remedy) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is written is read again, from each partition, whatever lies around it:
// entries, transactions that committed, aborted or are open, their markers.
func TestStates(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, broker.Config{Brokers: 2})
	w.ledger(ctx, t, 4)
	if got, err := topic.ReadStates(ctx, w.co, group, 4); err != nil || len(got) != 4 || got.Number() != 0 {
		t.Errorf("empty: %+v, %v", got, err)
	}
	if err := topic.WriteGeneration(ctx, w.co, group, active(1, "ledger"), []int32{0, 1, 2}); err != nil {
		t.Fatal(err)
	}
	w.transaction(ctx, t, "a", kgo.TryCommit, 0, encoded(t, anEntry(1)))
	w.transaction(ctx, t, "b", kgo.TryAbort, 1, encoded(t, anEntry(1)), encoded(t, anEntry(1)))
	w.put(ctx, t, 1, encoded(t, resetting(2)))
	w.put(ctx, t, 1, encoded(t, active(1, "ledger"))) // late, and of no matter
	w.put(ctx, t, 3, encoded(t, anEntry(4)))
	want := topic.States{{active(1, "ledger"), 1}, {resetting(2), 1}, {active(1, "ledger"), 0}, {entry.Generation{}, 4}}
	got, err := topic.ReadStates(ctx, w.co, group, 4)
	if err != nil || !reflect.DeepEqual(got, want) || got.Number() != 4 {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if got, err := topic.ReadStates(ctx, w.co, group, 2); err != nil || !reflect.DeepEqual(got, want[:2]) {
		t.Errorf("two of four partitions: %+v, %v", got, err)
	}
}

// What is not understood stops who reads; so do two guarantees of one generation.
func TestStatesNotUnderstood(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	for name, tc := range map[string]struct {
		value []byte
		want  error
	}{
		"a newer version": {[]byte{200, 1, 2}, entry.ErrVersion},
		"something else":  {[]byte{}, entry.ErrCorrupt},
		"two guarantees":  {encoded(t, active(1, "staged")), topic.ErrMixed},
	} {
		w := start(t, broker.Config{})
		w.ledger(ctx, t, 1)
		w.put(ctx, t, 0, encoded(t, active(1, "ledger")))
		if _, err := topic.ReadStates(ctx, w.co, group, 1); err != nil {
			t.Errorf("%s: before it: %v", name, err)
		}
		w.put(ctx, t, 0, tc.value)
		if _, err := topic.ReadStates(ctx, w.co, group, 1); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), "partition 0, offset 1") {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// Truncation that overtakes a scan makes it begin anew, and what was copied to
// behind the deleted records is found.
func TestScanOvertaken(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, broker.Config{})
	w.ledger(ctx, t, 1)
	w.put(ctx, t, 0, encoded(t, active(1, "ledger")))
	w.put(ctx, t, 0, encoded(t, anEntry(1)))
	truncated := false
	w.b.SetIntercept(func(r broker.Request) broker.Action {
		if _, ok := r.Message().(*kmsg.FetchRequest); !ok || truncated {
			return broker.Action{}
		}
		truncated = true
		return broker.Action{Before: func() {
			w.put(ctx, t, 0, encoded(t, active(1, "ledger")))
			deleted, err := w.adm.DeleteRecords(ctx, offsets(2))
			if err == nil {
				err = deleted.Error()
			}
			if err != nil {
				t.Error(err)
			}
		}}
	})
	got, err := topic.ReadStates(ctx, w.co, group, 1)
	if want := (topic.States{{active(1, "ledger"), 0}}); err != nil || !reflect.DeepEqual(got, want) || !truncated {
		t.Errorf("%+v, %v, want %+v (truncated %v)", got, err, want, truncated)
	}
}

// A leader that does not know of its partition yet is asked again; what is read is
// read once.
func TestScanOfANewTopic(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, broker.Config{})
	w.ledger(ctx, t, 1)
	w.put(ctx, t, 0, encoded(t, active(1, "ledger")))
	unknown := 0
	w.b.SetIntercept(func(r broker.Request) broker.Action {
		m, ok := r.Message().(*kmsg.ListOffsetsRequest)
		if !ok || unknown == 2 {
			return broker.Action{}
		}
		unknown++
		resp := m.ResponseKind().(*kmsg.ListOffsetsResponse)
		rp := kmsg.NewListOffsetsResponseTopicPartition()
		rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
		resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: m.Topics[0].Topic, Partitions: []kmsg.ListOffsetsResponseTopicPartition{rp}}}
		return broker.Action{Answer: resp}
	})
	got, err := topic.ReadStates(ctx, w.co, group, 1)
	if err != nil || !reflect.DeepEqual(got, topic.States{{Generation: active(1, "ledger")}}) || unknown != 2 {
		t.Errorf("%+v, %v, after %d refusals", got, err, unknown)
	}
}

// Who may not read or write is told what to grant.
func TestForbidden(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, broker.Config{})
	w.ledger(ctx, t, 1)
	w.put(ctx, t, 0, encoded(t, active(1, "ledger")))
	w.b.SetIntercept(forbid)
	_, err := topic.ReadStates(ctx, w.co, group, 1)
	forbidden(t, "read", err, "grant Read on topic __sharetxn_ledger.g")
	err = topic.WriteGeneration(ctx, w.co, group, active(2, "ledger"), []int32{0})
	forbidden(t, "write", err, "grant Write on topic __sharetxn_ledger.g")
	w.b.SetIntercept(nil)
	if got, err := topic.ReadStates(ctx, w.co, group, 1); err != nil || got.Number() != 1 {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
	w.co.Close()
	if _, err := topic.ReadStates(ctx, w.co, group, 1); !errors.Is(err, sharetxn.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
