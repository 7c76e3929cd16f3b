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
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/quake"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
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

// In every twenty turns exactly one is unlucky; the seed says which.
func TestDice(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	draw := func(seed uint64) (at []int) {
		d := newDice(seed)
		for i := range 50 * abortEvery {
			if d.unlucky() {
				at = append(at, i)
			}
		}
		return at
	}
	one := draw(1)
	if len(one) != 50 {
		t.Fatalf("%d of 1000 turns are unlucky", len(one))
	}
	places := make(map[int]bool)
	for i, at := range one {
		if at/abortEvery != i {
			t.Fatalf("twenty number %d has none, or two: %v", i, one)
		}
		places[at%abortEvery] = true
	}
	if len(places) < 10 {
		t.Errorf("not at random: %v", one)
	}
	if !slices.Equal(one, draw(1)) || slices.Equal(one, draw(2)) {
		t.Error("not by seed")
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

func TestOutputs(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	for name, c := range map[string]struct {
		line   string
		topics []string
	}{
		"small":    {`{"id":"a","properties":{"mag":1,"type":"earthquake"}}`, []string{"quakes.enriched"}},
		"large":    {`{"id":"a","properties":{"mag":7,"type":"earthquake"}}`, []string{"quakes.enriched", "quakes.alerts"}},
		"rejected": {`{"id":"a"}`, []string{"quakes.dead"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range outputs([]byte(c.line), quake.Transform([]byte(c.line))) {
				got = append(got, r.Topic)
				if string(r.Key) != "a" {
					t.Errorf("key %q", r.Key)
				}
				if r.Topic == topics.Dead && (string(r.Value) != c.line || len(r.Headers) != 1 || r.Headers[0].Key != "reason" || string(r.Headers[0].Value) != `type ""`) {
					t.Errorf("dead letter %s, %v", r.Value, r.Headers)
				}
			}
			if !slices.Equal(got, c.topics) {
				t.Errorf("to %v, want %v", got, c.topics)
			}
		})
	}
}

// stopped is a fed cluster whose members do nothing.
func stopped(ctx context.Context, t *testing.T, lines ...string) (*broker.Cluster, *sharetxn.Cluster) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	b, err := start(logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...)), sharetxn.Logger(logger))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	var input [][]byte
	for _, l := range lines {
		input = append(input, []byte(l))
	}
	if err := feed(ctx, cl, input); err != nil {
		t.Fatal(err)
	}
	return b, cl
}

// The lag counts what was fed and is not done, before anybody joined, while
// some is done, and at the end.
func TestLag(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	lines := []string{"a", "b", "c", "d"}
	b, _ := stopped(ctx, t, lines...)
	k, err := kgo.NewClient(kgo.SeedBrokers(b.Seeds()...), kgo.ShareGroup(group), kgo.ConsumeTopics(topics.Source))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	adm := kadm.NewClient(k)
	if got, err := lag(ctx, adm, len(lines)); got != 4 || err != nil {
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
		if got, err := lag(ctx, adm, len(lines)); got != 4-done || err != nil {
			t.Fatalf("%d are done: lag %d, %v", done, got, err)
		}
	}
}

// A pipeline that stands still fails, and says what is left.
func TestStall(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	_, cl := stopped(ctx, t, "a", "b")
	p := &pipeline{cfg: Config{Stderr: io.Discard}, cl: cl, count: &counts{}, input: 2, stall: 200 * time.Millisecond}
	if err := p.watch(ctx); err == nil || !strings.Contains(err.Error(), "no transaction was committed for 200ms; 2 of 2 records are left") {
		t.Fatalf("error %v", err)
	}
	// The neighbour: nothing fed, nothing left.
	p.input = 0
	if err := p.watch(ctx); err != nil {
		t.Fatal(err)
	}
}

// The aborts on purpose are real ones: their outputs lie in the logs, behind
// abort markers, and the table tells of it.
func TestAbortsReachTheLogs(t *testing.T) {
	ctx := testkit.Deadline(t, 100*time.Second)
	var in, out, progress bytes.Buffer
	for i := range 200 {
		fmt.Fprintf(&in, `{"id":"%d","properties":{"mag":%d,"type":"earthquake"}}`+"\n", i, i%8)
	}
	if err := Run(ctx, Config{Input: &in, Seed: 3, Members: 2, Batch: 2, Stdout: &out, Stderr: &progress}); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), progress.String())
	}
	text := out.String()
	if strings.Contains(text, ", 0 aborts") || !strings.Contains(text, "audit: right") || !strings.Contains(text, "input 200: accepted 200, alerts 75, rejected 0") {
		t.Error(text)
	}
	if !strings.Contains(progress.String(), "200 of 200 records") || !strings.Contains(progress.String(), "shortened: locks 10s, transaction timeout 6s") {
		t.Error(progress.String())
	}
}
