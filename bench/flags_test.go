package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestParse(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	m, err := parse(strings.Fields("-contest consume -who ours,kgo -settings best -size 100 -records 7 -rounds 2 -partitions 3 -batch 99 -fetch 5 -txn 4,50 -profile p -json j"))
	if err != nil {
		t.Fatal(err)
	}
	want := measurement{held: []string{"consume"}, rounds: 2, transactions: 100, heartbeat: 5 * time.Second,
		consume: consumption{Records: 7, Partitions: 3, Batch: 99, Fetch: 5}, sizes: []int{100}, txns: []int{4, 50}, who: []string{"ours", "kgo"}, best: []bool{true},
		copies: m.copies, profiles: "p", json: "j"}
	m.perRun = nil // a function, which cannot be compared
	if !reflect.DeepEqual(m, want) {
		t.Errorf("%+v, want %+v", m, want)
	}
	for _, args := range []string{"-contest run", "-who us", "-settings worst", "-size many", "-size 0", "-txn 0", "-txn some", "-contest ctp -size 7", "-rounds 0", "-records 0", "-partitions -1", "-batch 0", "-fetch 0", "more"} {
		if _, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%s is taken without a word", args)
		}
	}
}

// A run of ctp is of whole transactions, more than one, so that something is left
// when the first has started the clock.
func TestRecordsOf(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, txn := range []int{1, 9, 10, 100, 499, 500, 1000, 100_000} {
		if n := recordsOf(txn); n%txn != 0 || n < 2*txn {
			t.Errorf("%d records a run, at %d a transaction", n, txn)
		}
	}
}
