// Package differential runs seeded random operation lists against two clusters
// at once and compares what they answer. A list is text, one operation a line,
// so that one that found something can be shortened, edited, kept and replayed.
package differential

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Verb is what an operation does.
type Verb string

const (
	Produce  Verb = "produce"  // n records in one batch
	Commit   Verb = "commit"   // n records in a transaction that commits
	Abort    Verb = "abort"    // n records in a transaction that aborts
	Fetch    Verb = "fetch"    // at most about n records of the partition, which alone is in the session then
	Ack      Verb = "ack"      // acknowledgements alone
	FetchAck Verb = "fetchack" // acknowledgements on a fetch
	Renew    Verb = "renew"    // as Ack, with IsRenewAck
	Close    Verb = "close"    // final epoch, with acknowledgements or none
	Astray   Verb = "astray"   // a fetch n epochs beside the session's
	Describe Verb = "describe" // start offset and lag of the partition
)

// Op is one operation.
type Op struct {
	Verb      Verb
	Member    int
	Partition int
	N         int
	Limit     bool // record_limit instead of batch_optimized
	Ranges    []Range
}

// Range names offsets to acknowledge: as they are (raw), or counted in what the
// member holds of the partition when the operation runs (held).
type Range struct {
	Held    bool
	At, Len int
	Types   []int8
}

// String is the operation as a line.
func (o Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s m%d p%d n=%d", o.Verb, o.Member, o.Partition, o.N)
	if o.Limit {
		b.WriteString(" limit")
	}
	for _, r := range o.Ranges {
		from := "raw"
		if r.Held {
			from = "held"
		}
		types := make([]string, len(r.Types))
		for i, t := range r.Types {
			types[i] = strconv.Itoa(int(t))
		}
		fmt.Fprintf(&b, " %s:%d+%d:%s", from, r.At, r.Len, strings.Join(types, ","))
	}
	return b.String()
}

// Text is a list as text.
func Text(ops []Op) string {
	var b strings.Builder
	for _, o := range ops {
		b.WriteString(o.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Parse reads a list; empty lines and such that begin with # are passed over.
func Parse(text string) (ops []Op, err error) {
	in := bufio.NewScanner(strings.NewReader(text))
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		o, err := parseOp(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", n, line, err)
		}
		ops = append(ops, o)
	}
	return ops, in.Err()
}

var verbs = []Verb{Produce, Commit, Abort, Fetch, Ack, FetchAck, Renew, Close, Astray, Describe}

func parseOp(line string) (o Op, err error) {
	words := strings.Fields(line)
	if len(words) < 4 {
		return o, fmt.Errorf("want VERB mN pN n=N")
	}
	if o.Verb = Verb(words[0]); !slices.Contains(verbs, o.Verb) {
		return o, fmt.Errorf("no such verb")
	}
	if _, err := fmt.Sscanf(strings.Join(words[1:4], " "), "m%d p%d n=%d", &o.Member, &o.Partition, &o.N); err != nil {
		return o, err
	}
	if o.Member < 0 || o.Member >= members || o.Partition < 0 || o.Partition >= partitions {
		return o, fmt.Errorf("want a member below %d and a partition below %d", members, partitions)
	}
	for _, w := range words[4:] {
		if w == "limit" {
			o.Limit = true
			continue
		}
		r, err := parseRange(w)
		if err != nil {
			return o, err
		}
		o.Ranges = append(o.Ranges, r)
	}
	return o, nil
}

func parseRange(w string) (r Range, err error) {
	parts := strings.Split(w, ":")
	if len(parts) != 3 || (parts[0] != "raw" && parts[0] != "held") {
		return r, fmt.Errorf("range %q: want raw:AT+LEN:TYPES or held:AT+LEN:TYPES", w)
	}
	r.Held = parts[0] == "held"
	if _, err := fmt.Sscanf(parts[1], "%d+%d", &r.At, &r.Len); err != nil {
		return r, fmt.Errorf("range %q: %w", w, err)
	}
	for _, t := range strings.Split(parts[2], ",") {
		n, err := strconv.ParseInt(t, 10, 8)
		if err != nil {
			return r, fmt.Errorf("range %q: %w", w, err)
		}
		r.Types = append(r.Types, int8(n))
	}
	return r, nil
}
