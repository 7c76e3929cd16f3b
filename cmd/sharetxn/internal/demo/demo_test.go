package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/audit"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestReadLines(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	full := strings.Repeat("x", maxLine)
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		in    io.Reader
		want  []string
		fails string
	}{
		"empty":           {in: strings.NewReader("")},
		"one":             {in: strings.NewReader("a\n"), want: []string{"a"}},
		"no newline":      {in: strings.NewReader("a\nb"), want: []string{"a", "b"}},
		"blank lines":     {in: strings.NewReader("\n\na\n\r\n \nb\n\n"), want: []string{"a", " ", "b"}},
		"Windows' ends":   {in: strings.NewReader("a\r\nb\r\n"), want: []string{"a", "b"}},
		"byte by byte":    {in: iotest.OneByteReader(strings.NewReader("ab\ncd\n")), want: []string{"ab", "cd"}},
		"longest":         {in: strings.NewReader("a\n" + full + "\r\nb\n"), want: []string{"a", full, "b"}},
		"too long":        {in: strings.NewReader("a\n" + full + "y\n"), fails: "line 2 has more than 900000 bytes"},
		"much too long":   {in: strings.NewReader("a\n\n" + full + full), fails: "line 3 has more than 900000 bytes"},
		"reading failing": {in: io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), fails: "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readLines(ctx, c.in)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Fatalf("error %v, want %q", err, c.fails)
				}
				return
			}
			if err != nil || !slices.EqualFunc(got, c.want, func(a []byte, b string) bool { return string(a) == b }) {
				t.Fatalf("%d lines, %v", len(got), err)
			}
		})
	}
}

// A read that blocks does not keep an interrupted run.
func TestReadLinesStops(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	r, w := io.Pipe()
	defer w.Close()
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(ctx)
	go func() {
		fmt.Fprintln(w, "a") // returns when it was read
		stop(stopped)
	}()
	if _, err := readLines(ctx, r); !errors.Is(err, stopped) {
		t.Fatal(err)
	}
}

func TestFed(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	for input, want := range map[int][]int64{0: {0, 0, 0}, 1: {1, 0, 0}, 2: {1, 1, 0}, 3: {1, 1, 1}, 1707: {569, 569, 569}, 1708: {570, 569, 569}} {
		if got := []int64{fed(input, 0), fed(input, 1), fed(input, 2)}; !slices.Equal(got, want) {
			t.Errorf("%d lines: %v, want %v", input, got, want)
		}
	}
}

// Each record has one number, that of its line.
func TestNumber(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	next := make([]int64, partitions) // as feed deals them out
	for i := range 20 {
		p := int32(i % partitions)
		if got := number(p, next[p]); got != i {
			t.Errorf("partition %d offset %d has number %d, want %d", p, next[p], got, i)
		}
		next[p]++
	}
}

const (
	small = `{"id":"a","properties":{"mag":1,"type":"earthquake"}}`
	large = `{"id":"a","properties":{"mag":7,"type":"earthquake"}}`
)

func TestHandler(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	h := newHandler(newNames("").Topics, faults.Plan{}, nil)
	for name, c := range map[string]struct {
		line   string
		topics []string
		reason string
	}{
		"small":    {line: small, topics: []string{"quakes.enriched"}},
		"large":    {line: large, topics: []string{"quakes.enriched", "quakes.alerts"}},
		"rejected": {line: `{"id":"a"}`, reason: `type ""`},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := h.handle(ctx, &processor.Record{Value: []byte(c.line)})
			var got []string
			for _, r := range out {
				got = append(got, r.Topic)
				if string(r.Key) != "a" {
					t.Errorf("key %q", r.Key)
				}
			}
			if !slices.Equal(got, c.topics) {
				t.Errorf("to %v, want %v", got, c.topics)
			}
			if reject, ok := errors.AsType[*processor.RejectError](err); ok != (c.reason != "") || ok && reject.Reason.Error() != c.reason {
				t.Errorf("error %v, want the reason %q", err, c.reason)
			}
		})
	}
}

// On the records that are planned the handler fails, once, as planned; its other
// records it handles.
func TestHandlerFails(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	var told []string
	tries := 0
	h := newHandler(newNames("").Topics, faults.Plan{Handler: map[int]faults.Kind{4: faults.HandlerError, 5: faults.HandlerPanic}}, func(k faults.Kind, in *processor.Record) bool {
		if tries++; tries == 1 { // it is not held: the fault waits for its next delivery
			return false
		}
		told = append(told, fmt.Sprintf("%v %d@%d", k, in.Partition, in.Offset))
		return true
	})
	handle := func(in *processor.Record) (panicked any, err error) {
		defer func() { panicked = recover() }()
		_, err = h.handle(ctx, in)
		return nil, err
	}
	for round := range 2 {
		for i := range 7 {
			panicked, err := handle(&processor.Record{Partition: int32(i % partitions), Offset: int64(i / partitions), Value: []byte(small)})
			if fails := round == 1 && i == 4; errors.Is(err, errOnPurpose) != fails || err != nil && !fails {
				t.Errorf("round %d, record %d: %v", round, i, err)
			}
			if panics := round == 0 && i == 5; (panicked != nil) != panics {
				t.Errorf("round %d, record %d: panic %v", round, i, panicked)
			}
		}
	}
	if want := []string{"handler-panic 2@1", "handler-error 1@1"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// The audit's name for the header of reasons is the Processor's.
func TestReasonHeader(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	if audit.ReasonHeader != processor.HeaderReason {
		t.Errorf("%q and %q", audit.ReasonHeader, processor.HeaderReason)
	}
}

// While faults are to come an input is fed little by little, but never nothing
// at once, and so that it lasts.
func TestPiece(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	for _, c := range []struct{ batch, members, input, strikes, want int }{
		{10, 3, 1707, 6, 30}, {10, 3, 1707, 18, 23}, {500, 3, 1707, 18, 23}, {10, 3, 5, 18, 1}, {10, 3, 0, 6, 1}, {10, 3, 100, 0, 25},
	} {
		if got := piece(Config{Batch: c.batch, Members: c.members}, c.input, c.strikes); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// still is a cluster without members, and lines to feed it.
func still(t *testing.T, lines ...string) *watch {
	t.Helper()
	ctx := testkit.Deadline(t, 60*time.Second)
	e, err := start(processor.Staged, sharetxn.ProfileDraft95, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.close)
	k, err := kgo.NewClient(kgo.SeedBrokers(e.Seeds()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	w := &watch{tell: func(string) {}, stall: 200 * time.Millisecond, site: e, count: &counts{}, client: k, admin: kadm.NewClient(k)}
	r, err := newReader(ctx, w.cfg, w.admin, e.called.Source)
	if err != nil {
		t.Fatal(err)
	}
	w.director = newDirector(e, r, faults.Plan{}, nil, nil)
	for _, l := range lines {
		w.lines = append(w.lines, []byte(l))
	}
	return w
}

// The lag counts what was fed and is not done, before anybody joined, while
// some is done, and at the end.
func TestLag(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := still(t, "a", "b", "c", "d")
	at := w.site.names()
	if err := feed(ctx, w.client, at.Source, w.lines[:1], 0); err != nil {
		t.Fatal(err)
	}
	if err := feed(ctx, w.client, at.Source, w.lines[1:], 1); err != nil { // where the first piece ended
		t.Fatal(err)
	}
	k, err := kgo.NewClient(kgo.SeedBrokers(w.site.seeds()...), kgo.ShareGroup(at.group), kgo.ConsumeTopics(at.Source))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if got, err := lag(ctx, w.admin, at, 4); got != 4 || err != nil {
		t.Fatalf("before: %d, %v", got, err)
	}
	for done := int64(0); done < 4; {
		k.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			r.Ack(kgo.AckAccept)
			done++
		})
		if err := k.FlushAcks(ctx); err != nil {
			t.Fatal(err)
		}
		if got, err := lag(ctx, w.admin, at, 4); got != 4-done || err != nil {
			t.Fatalf("%d are done: lag %d, %v", done, got, err)
		}
	}
}

// Members that stand still fail the run, which says what is left.
func TestStall(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	if err := still(t, "a", "b").run(ctx); err == nil || !strings.Contains(err.Error(), "no progress for 200ms; 2 of 2 records are left") {
		t.Fatalf("error %v", err)
	}
	// The neighbour: nothing to feed, nothing left.
	if err := still(t).run(ctx); err != nil {
		t.Fatal(err)
	}
}

// An input that is too short for the faults is said to be, and is right all the
// same; as a bundled one, which must be long enough, it is wrong.
func TestShortInput(t *testing.T) {
	for bundled, want := range map[bool]error{false: nil, true: ErrWrong} {
		ctx := testkit.Deadline(t, 100*time.Second)
		var out, progress bytes.Buffer
		err := Run(ctx, Config{
			Input: strings.NewReader(small + "\n" + large), Bundled: bundled, Faults: faults.Heavy, Seed: 1, Members: 2, Batch: 10, Stdout: &out, Stderr: &progress,
		})
		if !errors.Is(err, want) || !strings.Contains(out.String(), "input 2: accepted 2, alerts 1, rejected 0") || !strings.Contains(out.String(), "audit: right") {
			t.Errorf("bundled %v: %v\n%s%s", bundled, err, out.String(), progress.String())
		}
		if says := strings.Contains(progress.String(), "the input is too short for all faults"); says == bundled {
			t.Errorf("bundled %v: %s", bundled, progress.String())
		}
		if says := strings.Contains(out.String(), "WRONG: faults that did not fire in their window: handler-error 1 of 3"); says != bundled {
			t.Errorf("bundled %v: %s", bundled, out.String())
		}
	}
}

// What a comparison must show, and each way in which it does not.
func TestProves(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	right := func() *result { return &result{audit: &audit.Report{}} }
	doubles := func() *result {
		return &result{guarantee: processor.AckAfterCommit, audit: &audit.Report{Duplicates: 3, Wrong: []string{"topic x: 3 duplicate"}}}
	}
	for name, c := range map[string]struct {
		results []*result
		want    bool
	}{
		"right":                  {[]*result{right()}, true},
		"wrong":                  {[]*result{doubles()}, false},
		"a fault did not fire":   {[]*result{{audit: &audit.Report{}, unfired: []string{"killed 0 of 1"}}}, false},
		"right against doubled":  {[]*result{right(), doubles()}, true},
		"both double":            {[]*result{doubles(), doubles()}, false},
		"nothing doubles":        {[]*result{right(), right()}, false},
		"the other had no fault": {[]*result{right(), {audit: &audit.Report{Duplicates: 1}, unfired: []string{"killed 0 of 1"}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := proves(c.results); got != c.want {
				t.Errorf("proves is %v", got)
			}
		})
	}
	var text strings.Builder
	if err := writeComparison(&text, []*result{right(), right()}); err != nil || !strings.Contains(text.String(), "WRONG: staged shows no duplicate") {
		t.Errorf("%v: %s", err, text.String())
	}
}
