package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker/history"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
)

// chronicle is a history in a file, to which several processes add, each event by
// one write at the file's end: so it is in the order in which they happened,
// and what was told before a kill is there after it.
type chronicle struct{ file *os.File }

func openChronicle(path string) (chronicle, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return chronicle{file}, err
}

// told is a line of it: one event.
type told struct {
	Share       *share.Event      `json:",omitempty"`
	Txn         *txn.Event        `json:",omitempty"`
	Initialised *txn.Initialised  `json:",omitempty"`
	Produced    *history.Produced `json:",omitempty"`
	Entry       *history.Entry    `json:",omitempty"`
	Reported    *check.Reported   `json:",omitempty"`
	Read        *check.Read       `json:",omitempty"`
	Reached     *check.Reached    `json:",omitempty"`
}

func (c chronicle) add(e history.Event) {
	var l told
	switch e := e.(type) {
	case share.Event:
		l.Share = &e
	case txn.Event:
		l.Txn = &e
	case txn.Initialised:
		l.Initialised = &e
	case history.Produced:
		l.Produced = &e
	case history.Entry:
		l.Entry = &e
	case check.Reported:
		l.Reported = &e
	case check.Read:
		l.Read = &e
	case check.Reached:
		l.Reached = &e
	default:
		panic(fmt.Sprintf("an event of type %T", e))
	}
	text, err := json.Marshal(l)
	if err == nil {
		_, err = c.file.Write(append(text, '\n'))
	}
	if err != nil {
		panic(err) // what happened must not go unwritten
	}
}

// OnTxnStart implements sharetxn.HookTxn.
func (c chronicle) OnTxnStart(ctx context.Context, _ sharetxn.TxnStart) context.Context { return ctx }

// OnTxnEnd implements sharetxn.HookTxn. Producer id and epoch are the transaction's
// own, also when it is told of once more, and make its number.
func (c chronicle) OnTxnEnd(_ context.Context, e sharetxn.TxnEnd) {
	if e.ProducerID >= 0 {
		c.add(check.Reported{
			Op: e.ProducerID<<16 | int64(e.ProducerEpoch), Txn: &check.Txn{Producer: e.ProducerID, Epoch: e.ProducerEpoch}, Outcome: check.Outcome(e.Outcome.String()),
		})
	}
}

// events reads all that was added so far.
func (c chronicle) events() (out []history.Event, err error) {
	text, err := os.ReadFile(c.file.Name())
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		var l told
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		switch {
		case l.Share != nil:
			out = append(out, *l.Share)
		case l.Txn != nil:
			out = append(out, *l.Txn)
		case l.Initialised != nil:
			out = append(out, *l.Initialised)
		case l.Produced != nil:
			out = append(out, *l.Produced)
		case l.Entry != nil:
			out = append(out, *l.Entry)
		case l.Reported != nil:
			out = append(out, *l.Reported)
		case l.Read != nil:
			out = append(out, *l.Read)
		case l.Reached != nil:
			out = append(out, *l.Reached)
		default:
			return nil, fmt.Errorf("no event: %s", line)
		}
	}
	return out, nil
}
