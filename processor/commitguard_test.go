package processor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// saying is a ledger that says what it is told to.
type saying struct {
	groupLedger
	decision, end error
}

func (l saying) Decide(context.Context, []*kgo.Record) error { return l.decision }
func (l saying) Err() error                                  { return l.end }

// The guard refuses a commit when the ledger does, and also when the ledger comes to
// its end between that decision and EndTxn.
func TestCommitGuard(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	conflict, ended := errors.New("conflict"), errors.New("ended")
	for name, l := range map[string]saying{"agrees": {}, "refuses": {decision: conflict}, "ends after it": {end: ended}} {
		t.Run(name, func(t *testing.T) {
			g := &commitGuard{core: &core.Cluster{}, ledger: l}
			if f, err := g.Freeze(ctx); !errors.Is(err, l.decision) || f.Records != 0 {
				t.Errorf("Freeze: %+v, %v", f, err)
			}
			if err := g.Check(); !errors.Is(err, l.end) {
				t.Errorf("Check: %v", err)
			}
		})
	}
}
