package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/sharetxn/sharetxn/ledger"
)

// printable is what a command has to say, in words or as JSON.
type printable interface{ words(w io.Writer) }

func (t *task) print(p printable) error {
	if !t.json {
		p.words(t.stdout)
		return nil
	}
	enc := json.NewEncoder(t.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(p)
}

type created struct {
	Group string `json:"group"`
	Topic string `json:"topic"`
}

func (c created) words(w io.Writer) {
	fmt.Fprintf(w, "group %s has its ledger, topic %s, as wide as its widest source topic\n", c.Group, c.Topic)
}

type truncated struct {
	Group   string `json:"group"`
	Deleted int64  `json:"deleted"`
}

func (t truncated) words(w io.Writer) {
	fmt.Fprintf(w, "%d offsets deleted from the ledger of group %s\n", t.Deleted, t.Group)
}

type reset struct {
	Group string `json:"group"`
	To    string `json:"to"`
}

func (r reset) words(w io.Writer) {
	fmt.Fprintf(w, "group %s begins at %s now, and its ledger is in a new generation\n", r.Group, r.To)
}

type moved struct {
	Group        string   `json:"group"`
	From         string   `json:"from"`
	To           string   `json:"to"`
	Accepted     int64    `json:"accepted"`
	Released     int64    `json:"released"`
	LastDelivery []offset `json:"lastDelivery,omitempty"`
}

type offset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

func movedOf(t *task, m ledger.Moved) moved {
	out := moved{Group: t.group, From: m.From, To: m.To, Accepted: m.Accepted, Released: m.Released}
	for _, o := range m.LastDelivery {
		out.LastDelivery = append(out.LastDelivery, offset(o))
	}
	return out
}

func (m moved) words(w io.Writer) {
	fmt.Fprintf(w, "group %s is under guarantee %s, before under %s; %d records that were done were acknowledged for it, %d given back\n", m.Group, m.To, m.From, m.Accepted, m.Released)
	for _, o := range m.LastDelivery {
		fmt.Fprintf(w, "archived undone, since it had no delivery left: %s-%d, offset %d\n", o.Topic, o.Partition, o.Offset)
	}
}

type problem struct {
	Rule    string `json:"rule"`
	Setting string `json:"setting"`
	Value   string `json:"value"`
	Want    string `json:"want"`
	Command string `json:"command"`
	Fatal   bool   `json:"fatal"`
}

type checked struct {
	Group    string    `json:"group"`
	Fatal    int       `json:"fatal"`
	Problems []problem `json:"problems"`
}

func checkedOf(t *task, problems []ledger.Problem) checked {
	c := checked{Group: t.group, Problems: []problem{}}
	for _, p := range problems {
		p.Command = t.addresses(p.Command)
		c.Problems = append(c.Problems, problem(p))
		if p.Fatal {
			c.Fatal++
		}
	}
	return c
}

func (c checked) words(w io.Writer) {
	if len(c.Problems) == 0 {
		fmt.Fprintf(w, "group %s: nothing stands against exactly-once\n", c.Group)
	}
	for _, p := range c.Problems {
		kind := "advice"
		if p.Fatal {
			kind = "FATAL "
		}
		fmt.Fprintf(w, "%s  %s\n        is:   %s\n        want: %s\n        do:   %s\n", kind, p.Setting, p.Value, p.Want, p.Command)
	}
}

type status struct {
	Group      string            `json:"group"`
	Topic      string            `json:"topic"`
	Generation int64             `json:"generation"`
	Guarantee  string            `json:"guarantee"`
	Problem    string            `json:"problem,omitempty"`
	Command    string            `json:"command,omitempty"`
	Entries    int64             `json:"entries"`
	Open       int64             `json:"open"`
	AboveStart int64             `json:"aboveStart"`
	Records    int64             `json:"records"`
	Oldest     *time.Time        `json:"oldest,omitempty"`
	Bytes      int64             `json:"bytes"`
	Partitions []partitionStatus `json:"partitions"`
}

type partitionStatus struct {
	Partition  int32      `json:"partition"`
	Generation int64      `json:"generation"`
	Entries    int64      `json:"entries"`
	Open       int64      `json:"open"`
	AboveStart int64      `json:"aboveStart"`
	Records    int64      `json:"records"`
	Oldest     *time.Time `json:"oldest,omitempty"`
	Bytes      int64      `json:"bytes"`
	OldestOpen *openEntry `json:"oldestOpen,omitempty"`
}

type openEntry struct {
	Offset          int64  `json:"offset"`
	TransactionalID string `json:"transactionalId"`
	ProducerID      int64  `json:"producerId"`
	ProducerEpoch   int16  `json:"producerEpoch"`
}

func statusOf(t *task, s ledger.Status) status {
	out := status{
		Group: t.group, Topic: ledger.TopicName(t.group), Generation: s.Generation, Guarantee: s.Guarantee, Problem: s.Problem, Command: t.addresses(s.Command),
		Entries: s.Entries, Open: s.Open, AboveStart: s.AboveStart, Records: s.Records, Oldest: moment(s.Oldest), Bytes: s.Bytes,
	}
	for _, p := range s.Partitions {
		x := partitionStatus{
			Partition: p.Partition, Generation: p.Generation, Entries: p.Entries, Open: p.Open, AboveStart: p.AboveStart,
			Records: p.Records, Oldest: moment(p.Oldest), Bytes: p.Bytes,
		}
		if p.OldestOpen >= 0 {
			x.OldestOpen = &openEntry{p.OldestOpen, p.OldestOpenTransactionalID, p.OldestOpenProducerID, p.OldestOpenProducerEpoch}
		}
		out.Partitions = append(out.Partitions, x)
	}
	return out
}

// moment is nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func (s status) words(w io.Writer) {
	fmt.Fprintf(w, "ledger of group %s: topic %s, generation %d, guarantee %s\n\n", s.Group, s.Topic, s.Generation, s.Guarantee)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "partition\tentries\topen\tabove start\trecords\tbytes\toldest\t")
	row := func(name string, entries, open, above, records, bytes int64, oldest *time.Time) {
		size, since := "?", "-"
		if bytes >= 0 {
			size = strconv.FormatInt(bytes, 10)
		}
		if oldest != nil {
			since = oldest.Format(time.RFC3339)
		}
		fmt.Fprintf(tab, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t\n", name, entries, open, above, records, size, since)
	}
	for _, p := range s.Partitions {
		row(strconv.Itoa(int(p.Partition)), p.Entries, p.Open, p.AboveStart, p.Records, p.Bytes, p.Oldest)
	}
	row("all", s.Entries, s.Open, s.AboveStart, s.Records, s.Bytes, s.Oldest)
	_ = tab.Flush()
	for _, p := range s.Partitions {
		if o := p.OldestOpen; o != nil {
			fmt.Fprintf(w, "\npartition %d: the oldest open entry is at offset %d, of transactional id %s (producer %d, epoch %d)\n", p.Partition, o.Offset, o.TransactionalID, o.ProducerID, o.ProducerEpoch)
		}
	}
	if s.Problem != "" {
		fmt.Fprintf(w, "\nno processor can work with it: %s\n  %s\n", s.Problem, s.Command)
	}
}
