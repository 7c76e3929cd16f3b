package share

import (
	"testing"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// BenchmarkFetchAck is one member that takes records and accepts them with its
// next fetch, and Staged the same in transactions of one fetch each.
func BenchmarkFetchAck(b *testing.B) {
	const perBatch, records = 50, 100_000
	for _, c := range []struct {
		name   string
		max    int32
		staged bool
	}{{"500", 500, false}, {"50", 50, false}, {"Staged500", 500, true}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				r := newRig(b.Context(), b, nil)
				for range records / perBatch {
					r.log.with("in", 0, func(p *fakePartition) { p.add(put{n: perBatch, pid: -1, value: 100}) })
				}
				u := r.user("a")
				epoch := u.join()
				b.StartTimer()
				done, txn := int64(0), int16(0)
				var last [][3]int64
				for done < records || len(last) > 0 {
					resp := u.fetch(func(req *kmsg.ShareFetchRequest) {
						req.MaxRecords = c.max
						for _, l := range last {
							if !c.staged {
								p := &req.Topics[0].Partitions[0]
								p.AcknowledgementBatches = append(p.AcknowledgementBatches, kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch{FirstOffset: l[0], LastOffset: l[1], AcknowledgeTypes: []int8{1}})
							}
						}
					})
					last = got(resp)
					var bs []acks.AcknowledgementBatch
					for _, l := range last {
						done += l[1] - l[0] + 1
						bs = append(bs, batch(l[0], l[1], acks.Accept))
					}
					if c.staged && len(bs) > 0 {
						req := u.staging(epoch, bs...)
						req.ProducerEpoch = txn
						if code := u.stage(req); code != codeNone {
							b.Fatal(code)
						}
						txn++
						r.e.Outcome(7, txn, true)
					}
				}
				b.StopTimer()
				r.wantWindow("all", records, records)
				if read := r.log.read; read > 3*int64(len(batchBytes(put{n: perBatch, value: 100})))*records/perBatch {
					b.Fatalf("read %d bytes", read)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkFragments acknowledges every other offset of full windows, the worst
// there is for ranges.
func BenchmarkFragments(b *testing.B) {
	chunk := evenly(0, 40, 50)
	var odd, even []acks.AcknowledgementBatch
	for o := int64(0); o < 2000; o += 2 {
		even, odd = append(even, batch(o, o, acks.Accept)), append(odd, batch(o+1, o+1, acks.Accept))
	}
	b.ReportAllocs()
	for b.Loop() {
		p := loaded(0, 5, 2000)
		take(p, 2000, chunk)
		for _, bs := range [][]acks.AcknowledgementBatch{odd, even} {
			if code := p.acknowledge("a", bs, ackRule{}); code != codeNone {
				b.Fatal(code)
			}
		}
		if p.start != 2000 {
			b.Fatal(dump(p))
		}
	}
	b.ReportMetric(2000*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
