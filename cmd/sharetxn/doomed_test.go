package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// asDoomed makes the test's binary a `sharetxn broker` that writes down what
// happens, and kills itself; its value is the doom.
const asDoomed = "SHARETXN_TEST_AS_DOOMED_BROKER"

// doom is what such a broker is told, as JSON.
type doom struct {
	Case    string // in whose transaction it dies
	Death   string // by its name; none: it is killed from outside
	Witness string // the file in which it writes down that it does
	History string // the file that its history goes to
}

// death is a moment of a case's transaction at which the broker kills itself: the
// first time that what one of its fields of, marker and write names comes.
type death struct {
	name   string
	only   []string                                  // names of promises; nil: all
	heir   bool                                      // the first transaction is a killed service's, whose heir has it aborted
	window bool                                      // profile KIP93 loses what is staged, and the transaction commits
	of     func(m kmsg.Request) (id string, it bool) // a request, of a transactional id
	come   bool                                      // when it has come, before anything is done with it; else: all is done, it is not answered
	marker int                                       // before this one of the transaction's markers is written, from 1
	write  string                                    // a change in the journal, %s for the case; when it is written
	half   bool                                      // when so much of it is written
}

// What a change says. Transactional ids are made of the group's name, which is the
// case's, and the instance.
const (
	statusIs = `"ID":"%s-here-[^"]*","Status":`
	enlisted = statusIs + `1[^\]]*` + broker.StateTopic
	staged   = `"Group":"%s"[^{]*"Entries":\[[^\]]*"State":4`
	settled  = `"Group":"%s"[^{]*"Start":[1-9]`
)

var deaths = []death{
	{name: "rest"},
	{name: "produced", of: produces},
	{name: "enlisted-half", only: []string{"kip93"}, write: enlisted, half: true},
	{name: "staged-half", only: []string{"draft95"}, write: staged, half: true},
	{name: "staged", only: []string{"draft95", "kip93"}, of: stages},
	{name: "ending", of: ends, come: true, window: true},
	{name: "decided-half", write: statusIs + "2", half: true, window: true},
	{name: "decided", write: statusIs + "2", window: true},
	{name: "one-marker", marker: 2, window: true},
	{name: "settled-half", write: settled, half: true, window: true},
	{name: "settled", write: settled},
	{name: "completed-half", write: statusIs + "4", half: true},
	{name: "completed", of: ends},
	{name: "aborted", heir: true, write: statusIs + "3"},
}

func (d death) under(p promise) bool { return d.only == nil || slices.Contains(d.only, p.name) }

// suicide tells whether the broker dies by its own hand.
func (d death) suicide() bool { return d.of != nil || d.marker > 0 || d.write != "" }

func produces(m kmsg.Request) (string, bool) {
	if m, ok := m.(*kmsg.ProduceRequest); ok && m.TransactionID != nil {
		return *m.TransactionID, true
	}
	return "", false
}

func stages(m kmsg.Request) (string, bool) {
	if m, ok := m.(*wire.Request); ok && m.TransactionalID != nil {
		return *m.TransactionalID, true
	}
	return "", false
}

func ends(m kmsg.Request) (string, bool) {
	if m, ok := m.(*kmsg.EndTxnRequest); ok && m.Commit {
		return m.TransactionalID, true
	}
	return "", false
}

// doomed is the main function of such a broker; its command line is the program's.
func doomed(text string, args []string) (code int) {
	var d doom
	err := json.Unmarshal([]byte(text), &d)
	if err == nil {
		err = d.serve(args)
	}
	fmt.Fprintln(os.Stderr, "the doomed broker ends by itself:", err)
	return exitWrong
}

func (d doom) serve(args []string) error {
	cfg, err := brokerConfig(args, os.Stderr)
	if err != nil {
		return err
	}
	events, err := openChronicle(d.History)
	if err != nil {
		return err
	}
	defer events.file.Close()
	cfg.History, cfg.Witness = true, events.add
	cfg.HeartbeatInterval = 100 * time.Millisecond // members are to find out soon that they have to join again
	markers := func(txn.Marker) txn.Treatment { return txn.Treatment{} }
	if i := slices.IndexFunc(deaths, func(at death) bool { return at.name == d.Death }); i >= 0 {
		file, err := os.OpenFile(d.Witness, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer file.Close()
		markers = d.arm(deaths[i], &cfg, sync.OnceFunc(func() { witness{file}.dieAt(d.Death) }))
	}
	c, err := broker.Start(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	c.TreatMarkers(markers)
	return serveBroker(context.Background(), c, os.Stdout)
}

// arm has the broker die at the moment, by what it is asked, what it writes into
// its journal, or the markers that it writes.
func (d doom) arm(at death, cfg *broker.Config, die func()) func(txn.Marker) txn.Treatment {
	mine := func(id string) bool { return strings.HasPrefix(id, d.Case+"-here-") }
	if at.of != nil {
		cfg.Intercept = func(r broker.Request) (act broker.Action) {
			switch id, it := at.of(r.Message()); {
			case !it || !mine(id):
			case at.come:
				act.Before = die
			default:
				act.Then = die
			}
			return act
		}
	}
	if at.write != "" {
		change := regexp.MustCompile(fmt.Sprintf(at.write, regexp.QuoteMeta(d.Case)))
		cfg.OnWrite = func(journal io.Writer, changes []byte) (int, error) {
			found := change.FindIndex(changes)
			if found != nil && at.half {
				changes = changes[:found[1]]
			}
			n, err := journal.Write(changes)
			if found != nil && err == nil {
				die()
			}
			return n, err
		}
	}
	var nth atomic.Int64
	return func(m txn.Marker) (how txn.Treatment) {
		if mine(m.TransactionalID) && nth.Add(1) == int64(at.marker) {
			die()
		}
		return how
	}
}
