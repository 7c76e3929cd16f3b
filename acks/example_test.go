package acks_test

import (
	"fmt"

	"github.com/sharetxn/sharetxn/acks"
)

func ExampleSet() {
	orders := acks.TopicIDPartition{TopicID: [16]byte{1}, Topic: "orders"}
	var set acks.Set
	for offset := range int64(1000) {
		if err := set.Add(orders, offset, acks.Accept); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(set.Add(orders, 1001, acks.Reject))
	fmt.Println(set.Add(orders, 7, acks.Reject))
	for tp, batches := range set.Partitions() {
		fmt.Println(tp, batches)
	}
	// Output:
	// <nil>
	// acks: orders-0: offsets 7 to 7: Types: already accept, cannot be reject too
	// orders-0 [{0 999 [accept]} {1001 1001 [reject]}]
}
