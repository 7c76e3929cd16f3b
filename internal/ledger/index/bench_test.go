package index

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/sharetxn/sharetxn/internal/ledger/entry"
)

// What a Processor's start reads: transactions of 64 producers in turn, each over
// ten offsets, one in ten aborted; the start follows every 10,000 entries.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var x *Index
			for b.Loop() {
				x = applied(b, n, 10_000)
			}
			perEntry := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(n)
			b.ReportMetric(perEntry, "ns/entry")
			b.ReportMetric(float64(held(x)), "B-held")
		})
	}
}

// Without any start all that was committed holds the log, and memory.
func BenchmarkApplyWithoutStarts(b *testing.B) {
	var x *Index
	for b.Loop() {
		x = applied(b, 1_000_000, 0)
	}
	b.ReportMetric(float64(held(x)), "B-held")
}

// A poll's worth of records beside 100 open transactions and 2,000 runs that are
// done: what a broker lets members hold of one partition.
func BenchmarkLook(b *testing.B) {
	x := busy(b)
	b.ReportAllocs()
	for b.Loop() {
		for offset := range int64(500) {
			if x.Look(topic, 8*offset+5) != Fresh {
				b.Fatalf("offset %d is %v", 8*offset+5, x.Look(topic, 8*offset+5))
			}
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	x := busy(b)
	own := entry.Entry{Generation: 1, TransactionalID: "id", TopicID: topic, Partition: 3}
	for offset := range int64(500) {
		own.Ranges = append(own.Ranges, entry.Range{First: 8*offset + 5, Last: 8*offset + 5})
	}
	at, p := x.Next(), Producer{ID: 1 << 20}
	if err := x.Entry(at, p, own); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if d := x.Decide(at, p); d.Kind != Commit {
			b.Fatal(d)
		}
	}
}

// applied is an Index of n entries and their markers, told a start every so many.
func applied(b *testing.B, n, starts int) *Index {
	b.Helper()
	const producers, size = 64, 10
	producer := func(i int64) Producer { // each takes another id after 1,000 epochs
		turn := i / producers
		return Producer{turn/1000*producers + i%producers, int16(turn % 1000)}
	}
	x := New("g", 3, 0)
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	must(x.Generation(0, entry.Generation{Number: 1, Phase: entry.Active, Guarantee: "ledger", Group: "g"}))
	for i := range int64(n) {
		if i >= producers { // the transaction before of this producer ends
			p := producer(i - producers)
			must(x.Marker(x.Next(), Producer{p.ID, p.Epoch + 1}, i%10 != 0))
		}
		must(x.Entry(x.Next(), producer(i), entry.Entry{
			Generation: 1, TransactionalID: "id", TopicID: topic, Partition: 3, Ranges: []entry.Range{{First: size * i, Last: size*i + size - 1}},
		}))
		if starts > 0 && i%int64(starts) == 0 {
			x.Start(topic, size*(i-2*producers), x.Next(), x.Next())
		}
	}
	return x
}

func busy(b *testing.B) *Index {
	b.Helper()
	x := New("g", 3, 0)
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	must(x.Generation(0, entry.Generation{Number: 1, Phase: entry.Active, Guarantee: "ledger", Group: "g"}))
	put := func(id int64, rs []entry.Range) {
		must(x.Entry(x.Next(), Producer{ID: id}, entry.Entry{Generation: 1, TransactionalID: "id", TopicID: topic, Partition: 3, Ranges: rs}))
	}
	var rs []entry.Range
	for i := range int64(2000) {
		rs = append(rs, entry.Range{First: 8 * i, Last: 8*i + 3})
	}
	put(1000, rs)
	must(x.Marker(x.Next(), Producer{1000, 1}, true))
	for id := range int64(100) {
		var rs []entry.Range
		for i := range int64(20) {
			o := 8*(id*20+i) + 4
			rs = append(rs, entry.Range{First: o, Last: o})
		}
		put(id, rs)
	}
	return x
}

// held is the memory in use with x and without.
func held(x *Index) int64 {
	var with, without runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&with)
	runtime.KeepAlive(x)
	*x = Index{}
	runtime.GC()
	runtime.ReadMemStats(&without)
	return int64(with.HeapAlloc) - int64(without.HeapAlloc)
}
