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
	m, err := parse(strings.Fields("-contest consume -who ours,kgo -settings best -size 100 -records 7 -rounds 2 -partitions 3 -batch 99 -fetch 5 -profile p -json j"))
	if err != nil {
		t.Fatal(err)
	}
	want := measurement{held: []string{"consume"}, rounds: 2, transactions: 100, heartbeat: 5 * time.Second,
		consume: consumption{Records: 7, Partitions: 3, Batch: 99, Fetch: 5}, sizes: []int{100}, who: []string{"ours", "kgo"}, best: []bool{true},
		copies: m.copies, profiles: "p", json: "j"}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("%+v, want %+v", m, want)
	}
	for _, args := range []string{"-contest run", "-who us", "-settings worst", "-size many", "-size 0", "-rounds 0", "-records 0", "-partitions -1", "-batch 0", "-fetch 0", "more"} {
		if _, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%s is taken without a word", args)
		}
	}
}
