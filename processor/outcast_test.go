package processor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kerr"
)

// A member that its group has forgotten cannot stage. It asks the coordinator at
// once, and joins again: until then it fetches nothing more, so that being forgotten
// costs what it holds one delivery, and it does not run and abort transactions over
// and over.
func TestForgottenMember(t *testing.T) {
	for name, code := range map[string]int16{
		"unknown": kerr.UnknownMemberID.Code, "the group is gone": kerr.GroupIDNotFound.Code, "a stale epoch": kerr.StaleMemberEpoch.Code,
	} {
		t.Run(name, func(t *testing.T) {
			for _, on := range []setting{draft95, kip93} {
				t.Run(on.String(), func(t *testing.T) {
					testkit.Deadline(t, 3*time.Minute)
					synctest.Test(t, func(t *testing.T) {
						w := start(t, on)
						p := w.processor(t, processor.Config{MaxRecords: 10})
						stop := run(t, p)
						eventually(t, "it works", func() bool { return p.Status().Ready })
						w.feed(t, 60)
						w.WaitDrained(t, "g")
						asked := make(chan struct{})
						denied := w.Inject(t, sharetxntest.Fault{Key: sharetxntest.StageKey, Times: sharetxntest.Always, Until: asked, Action: sharetxntest.Answer(code)})
						refused := w.Inject(t, sharetxntest.Fault{Key: sharetxntest.HeartbeatKey, After: denied, Action: sharetxntest.Answer(kerr.UnknownMemberID.Code)})
						go func() {
							select {
							case <-refused:
								close(asked)
							case <-t.Context().Done():
							}
						}()
						w.feedMore(t, 60, 60)
						w.WaitDrained(t, "g")
						if err := stop(); err != nil {
							t.Fatal(err)
						}
						w.want(t, 120)
						w.seen.healthy(t, 2)
						if n := w.seen.count(sharetxn.Aborted); n == 0 || n > 10 { // each poll in hand may meet it once
							t.Errorf("%d transactions aborted", n)
						}
					})
				})
			}
		})
	}
}
