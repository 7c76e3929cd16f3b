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
	fmt.Printf("demo: %d figures as they must be\n", len(wanted))
}

// wanted are the bundled input's own figures, counted from the file, and the
// least that a run of 1,707 records in tens with an abort in twenty must show.
var wanted = []struct {
	name    string
	atLeast bool
	value   int64
}{
	{name: "input", value: 1707},
	{name: "accepted", value: 1679},
	{name: "alerts", value: 85},
	{name: "rejected", value: 28},
	{name: "duplicates", value: 0},
	{name: "missing", value: 0},
	{name: "lag", value: 0},
	{name: "transactions", atLeast: true, value: 150},
	{name: "aborts", atLeast: true, value: 5},
}

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
		var got *int64
		raw, there := figures[w.name]
		switch {
		case !there:
			complaints = append(complaints, w.name+" is absent")
			continue
		case json.Unmarshal(raw, &got) != nil || got == nil:
			complaints = append(complaints, fmt.Sprintf("%s is %s, not a whole number", w.name, raw))
			continue
		}
		switch {
		case w.atLeast && *got < w.value:
			complaints = append(complaints, fmt.Sprintf("%s is %d, want at least %d", w.name, *got, w.value))
		case !w.atLeast && *got != w.value:
			complaints = append(complaints, fmt.Sprintf("%s is %d, want %d", w.name, *got, w.value))
		}
	}
	return complaints, nil
}
