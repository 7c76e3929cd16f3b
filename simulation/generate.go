package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/processor"
)

// Generate makes the script of a seed. Seeds take turns with the guarantees, and
// Staged with the profiles.
func Generate(seed uint64) Script {
	g := &generator{dice: rand.New(rand.NewPCG(seed, 0))}
	g.Setup = g.setup(seed)
	g.ops()
	return g.Script
}

// generator makes one script.
type generator struct {
	Script
	dice *rand.Rand
}

func pick[T any](g *generator, of ...T) T { return of[g.dice.IntN(len(of))] }

func (g *generator) setup(seed uint64) Setup {
	s := defaults()
	switch seed % 4 {
	case 0:
		s.Profile = sharetxn.ProfileDraft95
	case 1:
		s.Profile = sharetxn.ProfileKIP93
	case 2:
		s.Guarantee = processor.Ledger
	case 3:
		s.Guarantee = processor.AckAfterCommit
	}
	if s.Guarantee == processor.Staged {
		s.Form = pick(g, FormProcessor, FormProcessor, FormClosure, FormExplicit, FormAcknowledger)
	}
	s.Partitions = pick(g, 1, 3, 3, 6)
	s.Lock = pick(g, 5*time.Second, 10*time.Second, 15*time.Second)
	s.Timeout = pick(g, 3*time.Second, 5*time.Second, 10*time.Second)
	s.Resolve = pick(g, 2*time.Second, 5*time.Second, 10*time.Second)
	s.Members = pick(g, 1, 1, 2, 3)
	s.Concurrency = pick(g, 1, 1, 4)
	if s.Form == FormProcessor && g.dice.IntN(4) == 0 {
		s.Handler, s.Concurrency = HandlerBatch, 1
	}
	s.Batch = pick(g, 1, 5, 20, 100)
	s.IDs = pick(g, 1, 2, 3)
	return s
}

// lasts is how long the operations go on; see the bound of a seed in the tests.
const lasts = time.Minute

func (g *generator) ops() {
	processes := []string{"p0", "p1", "p2"}[:pick(g, 1, 2, 2, 3)]
	for _, p := range processes {
		g.add(g.within(2*time.Second), "start", p)
	}
	for range 4 {
		g.add(g.within(lasts), "produce", strconv.Itoa(1+g.dice.IntN(20)))
	}
	g.add(0, "produce", strconv.Itoa(5+g.dice.IntN(20)))
	g.add(g.within(lasts), "poison", strconv.Itoa(1+g.dice.IntN(3)))
	for range 4 + g.dice.IntN(6) {
		g.harm(processes)
	}
	slices.SortStableFunc(g.Ops, func(a, b Op) int { return cmp.Compare(a.At, b.At) })
}

// within gives a moment before d, in whole milliseconds.
func (g *generator) within(d time.Duration) time.Duration {
	return time.Duration(g.dice.Int64N(d.Milliseconds())) * time.Millisecond
}

// add appends an operation of words, some of several words in one.
func (g *generator) add(at time.Duration, words ...string) {
	o, err := op(at, strings.Fields(strings.Join(words, " "))...)
	if err != nil {
		panic(fmt.Sprintf("simulation: the generator made what cannot be read: %v", err))
	}
	g.Ops = append(g.Ops, o)
}

// weights of harms, and what makes each.
var harms = []struct {
	weight int
	do     func(*generator, time.Duration, []string)
}{
	{8, func(g *generator, at time.Duration, _ []string) {
		key := g.key()
		g.add(at, "fault", key, strconv.Itoa(1+g.dice.IntN(3)), g.action(key))
	}},
	{3, func(g *generator, at time.Duration, _ []string) { // so long that an outcome stays unknown
		long := "8s"
		if g.Setup.Form == FormProcessor {
			at, long = at/4, "45s" // all of it before everything heals
		}
		g.add(at, "produce", strconv.Itoa(1+g.dice.IntN(5)))
		g.add(at, "outage EndTxn", long, pick(g, "lose-request", "lose-request", "lose-answer"))
	}},
	{2, func(g *generator, at time.Duration, _ []string) {
		g.add(at, "produce", strconv.Itoa(1+g.dice.IntN(5)))
		key := pick(g, "TxnShareAcknowledge", "TxnShareAcknowledge", "ShareAcknowledge", "InitProducerID", "FindCoordinator")
		g.add(at, "outage", g.spoken(key), pick(g, "2s", "8s"), "lose-request")
	}},
	{2, func(g *generator, at time.Duration, ps []string) { // a second one of the same name
		g.add(at, "start", pick(g, ps...))
	}},
	{1, func(g *generator, at time.Duration, ps []string) {
		p := pick(g, ps...)
		g.add(at, "kill", p)
		g.add(at+g.within(20*time.Second), "start", p)
	}},
	{1, func(g *generator, at time.Duration, ps []string) {
		p := pick(g, ps...)
		g.add(at, "stop", p)
		g.add(at+g.within(20*time.Second), "start", p)
	}},
	{3, func(g *generator, at time.Duration, ps []string) {
		g.add(at, "produce", strconv.Itoa(1+g.dice.IntN(10)))
		g.add(at+g.within(100*time.Millisecond), "hold", pick(g, ps...), pick(g, "1s", "8s", "20s", "40s"))
	}},
	{2, func(g *generator, at time.Duration, _ []string) {
		g.add(at, "produce", strconv.Itoa(1+g.dice.IntN(10)))
		g.add(at, "slow", strconv.Itoa(1+g.dice.IntN(5)), pick(g, "500ms", "2s", "6s", "15s"))
		g.add(at+g.within(time.Second), g.mishap())
	}},
	{7, func(g *generator, at time.Duration, ps []string) { // two work on the same records, and the first does not know
		g.add(at, "deafen", pick(g, "next", "next", "next", pick(g, ps...)), "4s")
		g.add(at+time.Millisecond, "produce", strconv.Itoa(1+g.dice.IntN(3)))
		moves := 500 * time.Millisecond
		if g.dice.IntN(3) > 0 { // and is so late that the second comes before it
			g.add(at, "slow 10 300ms")
			g.add(at, "fault Produce 1 delay 2500ms")
			g.add(at, "fault Produce 2 delay 2500ms")
			at, moves = at+time.Second, 300*time.Millisecond
		} else {
			g.add(at, "slow 60", pick(g, "300ms", "500ms", "1s"))
		}
		if g.dice.IntN(2) == 0 {
			g.add(at, "markers 20 4s")
		}
		for p := range g.Setup.Partitions {
			g.add(at+time.Millisecond+g.within(moves), "leader in", strconv.Itoa(p), g.broker())
		}
	}},
	{2, func(g *generator, at time.Duration, ps []string) { // some are left behind with what they had in hand
		at /= 2
		if g.dice.IntN(2) == 0 {
			g.add(at, "produce", strconv.Itoa(1+g.dice.IntN(10)))
			g.add(at+g.within(100*time.Millisecond), "hold", pick(g, ps...), "70s")
		}
		switch g.dice.IntN(4) {
		case 0:
			g.add(at+time.Second, "unset", pick(g, "alter", "delete", "group"))
		default:
			g.add(at+time.Second, "reset", pick(g, "0s", g.within(at+time.Second).String()))
		}
	}},
	{1, func(g *generator, at time.Duration, _ []string) { g.add(at, "abort", strconv.Itoa(1+g.dice.IntN(4))) }},
	{2, func(g *generator, at time.Duration, _ []string) { g.add(at, g.mishap()) }},
	{2, func(g *generator, at time.Duration, _ []string) {
		g.add(at, "markers", strconv.Itoa(1+g.dice.IntN(10)), pick(g, "500ms", "3s", "12s"))
	}},
	{3, func(g *generator, at time.Duration, _ []string) { // the leader goes while records are staged
		g.add(at, "produce", strconv.Itoa(1+g.dice.IntN(10)))
		g.add(at, "fault EndTxn", strconv.Itoa(1+g.dice.IntN(2)), pick(g, g.move(), "restart "+g.broker()))
	}},
}

func (g *generator) harm(processes []string) {
	sum := 0
	for _, h := range harms {
		sum += h.weight
	}
	n := g.dice.IntN(sum)
	for _, h := range harms {
		if n -= h.weight; n < 0 {
			h.do(g, 2*time.Second+g.within(lasts-2*time.Second), processes)
			return
		}
	}
}

func (g *generator) broker() string { return strconv.Itoa(g.dice.IntN(g.Setup.Brokers)) }

func (g *generator) move() string {
	return fmt.Sprintf("leader in %d %s", g.dice.IntN(g.Setup.Partitions), g.broker())
}

func (g *generator) mishap() string {
	switch g.dice.IntN(5) {
	case 0:
		return "restart " + g.broker()
	case 1:
		return fmt.Sprintf("part 0 %d %s", 1+g.dice.IntN(g.Setup.Brokers-1), pick(g, "1s", "6s", "15s"))
	case 2:
		return fmt.Sprintf("leader out %d %s", g.dice.IntN(3), g.broker())
	default:
		return g.move()
	}
}

// codes that a broker may answer, by API.
var codes = map[string][]int{
	"ShareGroupHeartbeat": {15, 25, 110},
	"ShareFetch":          {6, 15, 122, 123},
	"ShareAcknowledge":    {6, 121, 122, 123},
	"InitProducerID":      {14, 15, 16, 51},
	"EndTxn":              {14, 15, 16, 51, 120},
	"TxnShareAcknowledge": {6, 7, 13, 14, 15, 16, 19, 29, 51, 121},
}

// spoken gives the API, or where that is staging and there is none what acknowledges in
// its place.
func (g *generator) spoken(key string) string {
	if key == "TxnShareAcknowledge" && g.Setup.Guarantee != processor.Staged {
		return "ShareFetch"
	}
	return key
}

func (g *generator) key() string {
	return g.spoken(pick(g, "Produce", "FindCoordinator", "Metadata", "ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge", "InitProducerID",
		"EndTxn", "EndTxn", "EndTxn", "TxnShareAcknowledge", "TxnShareAcknowledge", "TxnShareAcknowledge"))
}

func (g *generator) action(key string) string {
	of := []string{"lose-request", "lose-answer", "disconnect", "twice", "delay " + pick(g, "300ms", "3s", "12s", "30s"), g.mishap()}
	for _, c := range codes[key] {
		of = append(of, "answer "+strconv.Itoa(c))
	}
	return pick(g, of...)
}
