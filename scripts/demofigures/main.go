// Command demofigures reads what `sharetxn demo --json` printed for the bundled
// events and holds it against what that input must give. The demo audits itself;
// this catches a demo whose audit went blind.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	complaints, err := check(os.Stdin)
	if err != nil {
		complaints = append(complaints, err.Error())
	}
	for _, c := range complaints {
		fmt.Fprintln(os.Stderr, "demo:", c)
	}
	if len(complaints) > 0 {
		os.Exit(1)
	}
	fmt.Printf("demo: %d figures as they must be\n", len(wanted)+len(kinds)+3)
}

// wanted are the bundled input's own figures, counted from the file, and the
// least that a run of 1,707 records in tens with faults must show.
var wanted = []struct {
	name    string
	atLeast bool
	value   int64
}{
	{name: "input", value: 1707},
	{name: "accepted", value: 1679},
	{name: "alerts", value: 85},
	{name: "rejected", value: 28},
	{name: "missing", value: 0},
	{name: "unexpected", value: 0},
	{name: "staged", value: 0},
	{name: "lag", value: 0},
	{name: "transactions", atLeast: true, value: 150},
}

// aborts are the least of each guarantee: the process that is fenced leaves a
// transaction, and where acknowledgements are staged the one that is killed too.
var aborts = map[string]int64{"staged": 2, "ledger": 1, "ack-after-commit": 1}

// conceding are what lets outputs double by its own text: a guarantee, or a
// profile of staging.
var conceding = map[string]string{"guarantee": "ack-after-commit", "profile": "kip93"}

// kinds are the faults that a run must have had.
var kinds = []string{
	"handler-error", "handler-panic", "killed", "zombie", "lost-stage-answer", "lost-endtxn-answer", "leader-move", "paused",
}

// each is how often a level plans each kind at the least.
var each = map[string]int64{"light": 1, "heavy": 3}

// check lists what is wrong with the figures in r: one JSON object, nothing
// after it. A figure that is absent is wrong.
func check(r io.Reader) ([]string, error) {
	dec := json.NewDecoder(r)
	var figures map[string]json.RawMessage
	if err := dec.Decode(&figures); err != nil {
		return nil, fmt.Errorf("figures are no JSON object: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the figures")
	}
	var complaints []string
	for _, w := range wanted {
		got, wrong := number(figures, w.name)
		switch {
		case wrong != "":
			complaints = append(complaints, wrong)
		case w.atLeast && got < w.value:
			complaints = append(complaints, fmt.Sprintf("%s is %d, want at least %d", w.name, got, w.value))
		case !w.atLeast && got != w.value:
			complaints = append(complaints, fmt.Sprintf("%s is %d, want %d", w.name, got, w.value))
		}
	}
	complaints = append(complaints, checkAborts(figures)...)
	complaints = append(complaints, checkDuplicates(figures)...)
	complaints = append(complaints, checkFaults(figures)...)
	complaints = append(complaints, checkLedger(figures)...)
	return append(complaints, checkComparison(figures)...), nil
}

// number gives a figure, or says what is wrong with it.
func number(figures map[string]json.RawMessage, name string) (n int64, wrong string) {
	var got *int64
	raw, there := figures[name]
	switch {
	case !there:
		return 0, name + " is absent"
	case json.Unmarshal(raw, &got) != nil || got == nil:
		return 0, fmt.Sprintf("%s is %s, not a whole number", name, raw)
	}
	return *got, ""
}

// text gives a figure that is a word.
func text(figures map[string]json.RawMessage, name string) (s string) {
	_ = json.Unmarshal(figures[name], &s) // what is no word is none of those asked for
	return s
}

// checkAborts: there are as many as the guarantee leaves at the least.
func checkAborts(figures map[string]json.RawMessage) []string {
	least, known := aborts[text(figures, "guarantee")]
	if !known {
		return []string{fmt.Sprintf("guarantee is %s, which is none", figures["guarantee"])}
	}
	n, wrong := number(figures, "aborts")
	switch {
	case wrong != "":
		return []string{wrong}
	case n < least:
		return []string{fmt.Sprintf("aborts is %d, want at least %d", n, least)}
	}
	return nil
}

// concedes tells whether guarantee or profile lets outputs double.
func concedes(figures map[string]json.RawMessage) bool {
	for name, which := range conceding {
		if text(figures, name) == which {
			return true
		}
	}
	return false
}

// checkDuplicates: there are none, but where they are conceded, and then each is.
func checkDuplicates(figures map[string]json.RawMessage) (complaints []string) {
	duplicates, wrong := number(figures, "duplicates")
	if wrong != "" {
		return []string{wrong}
	}
	conceded, wrong := number(figures, "conceded")
	switch {
	case wrong != "":
		return []string{wrong}
	case duplicates != conceded:
		return []string{fmt.Sprintf("duplicates is %d, and %d are conceded", duplicates, conceded)}
	case duplicates != 0 && !concedes(figures):
		return []string{fmt.Sprintf("duplicates is %d, want 0", duplicates)}
	}
	return nil
}

// checkFaults: each kind was planned as often as the level says, and fired as
// often as it was planned.
func checkFaults(figures map[string]json.RawMessage) (complaints []string) {
	least, known := each[text(figures, "level")]
	if !known {
		return []string{fmt.Sprintf("level is %s, want light or heavy", figures["level"])}
	}
	var faults map[string]struct{ Planned, Fired int64 }
	if err := json.Unmarshal(figures["faults"], &faults); err != nil {
		return []string{"faults cannot be read"}
	}
	for _, k := range kinds {
		if f := faults[k]; f.Planned < least || f.Fired < f.Planned {
			complaints = append(complaints, fmt.Sprintf("fault %s was planned %d times and fired %d, want %d at least", k, f.Planned, f.Fired, least))
		}
	}
	return complaints
}

// checkLedger: the faults made records come again that only the ledger told to be
// done.
func checkLedger(figures map[string]json.RawMessage) []string {
	if text(figures, "guarantee") != "ledger" {
		return nil
	}
	var l map[string]json.RawMessage
	if err := json.Unmarshal(figures["ledger"], &l); err != nil {
		return []string{"ledger cannot be read"}
	}
	if n, wrong := number(l, "done"); wrong != "" || n == 0 {
		return []string{"ledger found nothing done, so that the faults did not need it"}
	}
	return nil
}

// checkComparison: where there is another half it shows what is compared.
func checkComparison(figures map[string]json.RawMessage) []string {
	raw, there := figures["ackAfterCommit"]
	if !there {
		return nil
	}
	var other map[string]json.RawMessage
	if err := json.Unmarshal(raw, &other); err != nil {
		return []string{"ackAfterCommit cannot be read"}
	}
	if n, wrong := number(other, "duplicates"); wrong != "" || n == 0 {
		return []string{"ackAfterCommit shows no duplicates, so that nothing is compared"}
	}
	return nil
}
