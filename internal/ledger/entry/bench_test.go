package entry

import "testing"

func BenchmarkParse(b *testing.B) {
	value, err := sample().Append(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(value); err != nil {
			b.Fatal(err)
		}
	}
}
