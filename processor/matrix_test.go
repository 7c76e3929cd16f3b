package processor_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// crash is a moment in a transaction at which its process dies.
type crash struct {
	name string // as docs/matrix.md has it
	arm  func(t *testing.T, w *world, cl *sharetxn.Cluster, die func())
	// decided: by then the transaction commits, whoever lives.
	decided bool
	// handled: by then the handler has run.
	handled bool
}

func after(step string) func(*testing.T, *world, *sharetxn.Cluster, func()) {
	return func(_ *testing.T, _ *world, cl *sharetxn.Cluster, die func()) { atStep(cl, step, die) }
}

// atEnd dies when EndTxn has come to the broker: before it is handled, or when it
// was and its answer is under way.
func atEnd(action sharetxntest.Action, decided bool) func(*testing.T, *world, *sharetxn.Cluster, func()) {
	return func(t *testing.T, w *world, _ *sharetxn.Cluster, die func()) {
		fired := w.Inject(t, sharetxntest.Fault{Key: sharetxntest.EndTxnKey, Action: action})
		go func() {
			<-fired
			for decided && len(w.Committed(t, "out")) == 0 {
				<-time.NewTimer(time.Millisecond).C
			}
			die()
		}()
	}
}

var crashes = []crash{
	{name: "records polled, nothing begun", arm: after("polled")},
	{name: "handler done, transaction begun", arm: after("begun"), handled: true},
	{name: "outputs produced, nothing staged", arm: after("produced"), handled: true},
	{name: "all produced and staged, EndTxn not at the broker", arm: atEnd(sharetxntest.Delay(time.Hour), false), handled: true},
	{name: "EndTxn(commit) done, its answer not seen", arm: atEnd(sharetxntest.LateAnswer(time.Hour), true), handled: true, decided: true},
	{name: "answer seen, nothing noted or acknowledged", arm: after("ended"), handled: true, decided: true},
}

// fate is what becomes of the records of a transaction whose process died.
type fate struct {
	published    bool // when it died, or by itself soon after
	acknowledged bool // likewise
	handled      int  // calls of the handler in all, of each; 0: of no matter
	found        bool // delivered again, and found in the ledger to be done
	visible      int  // outputs in the end
}

// fate by guarantee; by profile there is no difference.
func (c crash) fate(on setting) fate {
	f := fate{visible: 1, published: c.decided}
	f.acknowledged = c.decided && on.guarantee == processor.Staged
	f.found = c.decided && on.guarantee == processor.Ledger
	switch {
	case f.acknowledged || f.found:
		f.handled = 1
	case c.handled:
		f.handled = 2
	}
	if c.decided && on.guarantee == processor.AckAfterCommit {
		f.visible = 2
	}
	return f
}

func (f fate) String() string {
	switch {
	case f.acknowledged:
		return "published and acknowledged"
	case f.found:
		return "published; they come again, are found done and not handled"
	case f.published:
		return "published; they come again and are published twice"
	}
	return "nothing published; they come again"
}

// The page says what TestCrashMatrix shows, and leaves out no case of the KIP.
func TestMatrixPage(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	text, err := os.ReadFile("../docs/matrix.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, c := range crashes {
		want = append(want, fmt.Sprintf("| %s | %v | %v | %v |", c.name, c.fate(draft95), c.fate(ledgered), c.fate(plain)))
		if c.fate(draft95) != c.fate(kip93) {
			t.Errorf("%s: the page has one column for both profiles", c.name)
		}
	}
	for n := 1; n <= 14; n++ {
		if n <= 7 {
			want = append(want, fmt.Sprintf("| Case %d |", n))
		}
		if n != 4 {
			want = append(want, fmt.Sprintf("| Corner case %d |", n))
		}
	}
	for _, line := range want {
		if !strings.Contains(string(text), "\n"+line) {
			t.Errorf("no line %q", line)
		}
	}
}

// A process dies at a moment of a transaction, and another one comes after it, of
// the same ids or of others: what was published and acknowledged, and what comes
// again.
func TestCrashMatrix(t *testing.T) {
	for _, c := range crashes {
		for _, successor := range []string{"here", "there"} {
			t.Run(fmt.Sprintf("%s, successor %s", c.name, successor), func(t *testing.T) {
				inAll(t, func(t *testing.T, on setting) { c.test(t, on, successor) })
			})
		}
	}
}

const crashRecords = 3

func (c crash) test(t *testing.T, on setting, successor string) {
	want := c.fate(on)
	w := start(t, on, sharetxntest.Topic("in", 1), sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: 10 * time.Second}))
	w.feed(t, crashRecords)
	died := w.killed(t, processor.Config{}, func(cl *sharetxn.Cluster, die func()) { c.arm(t, w, cl, die) })
	if !died {
		t.Fatal("it did not come to that")
	}
	// Markers are written by then; no lock and no transaction has timed out.
	<-time.NewTimer(time.Second).C
	published, acknowledged := len(w.Committed(t, "out")), w.acknowledged(t)
	if published != map[bool]int{true: crashRecords}[want.published] || acknowledged != map[bool]int64{true: crashRecords}[want.acknowledged] {
		t.Errorf("%d outputs and %d acknowledgements of %d are there, want %+v", published, acknowledged, crashRecords, want)
	}
	w.RunUntilDrained(t, "g", w.processor(t, processor.Config{Instance: successor}))
	for v, n := range w.values(t, "out") {
		if calls := w.seen.calls[v]; n != want.visible || want.handled != 0 && calls != want.handled {
			t.Errorf("record %s: %d outputs of %d calls, want %+v", v, n, w.seen.calls[v], want)
		}
	}
	if n := w.seen.told(sharetxn.LedgerDone, ""); n != map[bool]int64{true: crashRecords}[want.found] {
		t.Errorf("%d records were found to be done, want %+v", n, want)
	}
	w.harmed = true
	w.want(t, crashRecords)
}

// acknowledged is how many of the records are done for the group, as its
// coordinator tells.
func (w *world) acknowledged(t *testing.T) int64 {
	t.Helper()
	cl, err := kgo.NewClient(w.Kafka()...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	groups, err := kadm.NewClient(cl).DescribeShareGroupOffsets(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	var done int64
	groups["g"].Offsets.Each(func(o kadm.ShareOffset) {
		if o.Lag >= 0 { // -1: nothing was written of the partition
			done += crashRecords - o.Lag
		}
	})
	return done
}
