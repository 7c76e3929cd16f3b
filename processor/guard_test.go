package processor

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/bind"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

type settledHandle struct {
	bind.Handle
	got *bind.Settlement
}

func (h settledHandle) Bind() bind.Handle        { return h }
func (h settledHandle) Settle(s bind.Settlement) { *h.got = s }

// What the ledger has is settled like anything else, but for the time it may take.
func TestUnhurriedSettlesThatMuchLater(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	var got bind.Settlement
	unhurried{settledHandle{got: &got}}.Bind().Settle(bind.Settlement{Outcome: 2, Plain: true})
	if got.Outcome != 2 || !got.Plain || got.Patience != ackPatience {
		t.Errorf("%+v", got)
	}
}
