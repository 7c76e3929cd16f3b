package simulation

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Topics of every run.
const (
	topicIn   = "in"
	topicOut  = "out"
	topicSide = "side"
	topicDead = "dead"
)

var errPoison = errors.New("poison")

const poisonMark = "x"

// value of the nth record that is fed.
func value(n int, poison bool) string {
	if poison {
		return fmt.Sprint(poisonMark, n)
	}
	return fmt.Sprint("h", n)
}

func isPoison(value string) bool { return strings.HasPrefix(value, poisonMark) }

// outputs are what the handler makes of a record that it accepts: a function of
// its value alone, one record for topic "out" and up to two for "side".
func outputs(value string) []*kgo.Record {
	out := []*kgo.Record{{Topic: topicOut, Value: []byte(value)}}
	h := fnv.New32()
	_, _ = h.Write([]byte(value))
	for range h.Sum32() % 3 {
		out = append(out, &kgo.Record{Topic: topicSide, Value: []byte(value)})
	}
	return out
}

// fromHeader of an output says which record it was made from, and which of its
// outputs it is.
const fromHeader = "from"

// traced gives the outputs of a record at its place.
func traced(outs []*kgo.Record, partition int32, offset int64) []*kgo.Record {
	for i, o := range outs {
		from := fmt.Appendf(nil, "%d %d %d %d", partition, offset, i+1, len(outs))
		o.Headers = append(o.Headers, kgo.RecordHeader{Key: fromHeader, Value: from})
	}
	return outs
}

// origin is what traced wrote.
func origin(out *kgo.Record) (o sharetxntest.Origin, ok bool) {
	for _, h := range out.Headers {
		if h.Key == fromHeader {
			o.Topic = topicIn
			_, err := fmt.Sscan(string(h.Value), &o.Partition, &o.Offset, &o.Nth, &o.Of)
			return o, err == nil
		}
	}
	return o, false
}

// spot names what is published, wherever its partition is.
type spot struct{ topic, value string }

func (s spot) String() string { return s.topic + "/" + s.value }

// published is how often each record is there.
type published map[spot]int

func (p published) add(rs []*kgo.Record) {
	for _, r := range rs {
		p[spot{r.Topic, string(r.Value)}]++
	}
}

// times is how often what is made of a record is there, as far as any of it tells.
func (p published) times(value string) (n int) {
	for s, of := range expected([]string{value}) {
		n = max(n, p[s]/of)
	}
	return n
}

// expected is what the input's records become, each once.
func expected(values []string) published {
	p := make(published)
	for _, v := range values {
		if isPoison(v) {
			p[spot{topicDead, v}]++
			continue
		}
		for _, r := range outputs(v) {
			p[spot{r.Topic, v}]++
		}
	}
	return p
}
