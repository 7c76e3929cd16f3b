package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// The first way is held against each other one, within a round.
func TestTransformTable(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	fast, slow := took(time.Second, time.Second, time.Millisecond), took(4*time.Second, 4*time.Second, 2*time.Millisecond)
	r := transformed{
		Contest: transform{Size: 100, Txn: 10, Records: 1100, Partitions: 4, Batch: 16384}, Ways: transformWays,
		// The machine was four times slower in the second round.
		Runs: [][]*run{{fast, slow}, {fast, slow}, {slow, slow}, {fast, fast}},
	}
	asked := *fast
	asked.Polls, asked.Requests = 101, map[string]int{"Produce": 100, "EndTxn": 250, "Metadata": 1}
	r.Runs[2] = []*run{&asked, &asked}
	var out bytes.Buffer
	r.write(&out)
	got := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"records of 100 bytes consumed, copied and acknowledged, 10 a transaction: 1100 a run, 4 partitions",
		"Processor, Ledger 625 250 1000 1.50 3.00 0.00 3",
		"ledger : Processor, AckAfterCommit 1.00 1.00 1.00 1.00 1.00 1.00",
		"kgo, one transactional id EndTxn 2.50, Produce 1.00, Metadata 0.01",
		"ledger : kgo, one transactional id 0.62 0.25 1.00 1.50 1.00 2.00",
		"ledger : kgo, two in turn 0.62 0.25 1.00 1.50 1.00 2.00",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in the table:\n%s", want, &out)
		}
	}
}
