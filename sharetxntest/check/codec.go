package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Version is of the history format that this package writes, and the only one
// that it reads.
const Version = 1

// ErrFormat is wrapped by every error of Read that is not the reader's own: the
// file is no history, or one of another version.
var ErrFormat = errors.New("not a history")

// maxLine bounds a line of a file, in bytes.
const maxLine = 1 << 20

// The first line, and what each other line begins with.
type (
	firstLine struct {
		Event   string `json:"event"`
		Version int    `json:"version"`
		Header
	}
	prelude struct {
		Event string     `json:"event"`
		Time  *time.Time `json:"time,omitempty"`
	}
)

const headerEvent = "history"

// types are the events by name.
var types = func() map[string]reflect.Type {
	all := make(map[string]reflect.Type)
	for _, e := range []Event{
		Delivered{}, Staged{}, Unstaged{}, Resolved{}, Lost{}, Decided{}, Expired{}, Released{}, Forgotten{}, Reset{}, Started{}, Initialised{}, Ended{}, Produced{}, Entry{},
		Begun{}, Reported{}, Handled{}, Read{}, Reached{}, Calm{}, Drained{},
		Source{}, Visible{}, Log{}, Share{},
	} {
		all[eventName(e)] = reflect.TypeOf(e)
	}
	return all
}()

func eventName(e Event) string { return strings.ToLower(reflect.TypeOf(e).Name()) }

// Write writes the history as JSON lines.
func (h *History) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(firstLine{headerEvent, Version, h.Header}); err != nil {
		return err
	}
	for i, l := range h.Lines {
		if bad := wrong(l.Event); bad != "" {
			return fmt.Errorf("line %d of the history, %s: %s", i+1, eventName(l.Event), bad)
		}
		if err := writeLine(out, l); err != nil {
			return err
		}
	}
	return out.Flush()
}

func writeLine(out *bufio.Writer, l Line) error {
	p := prelude{Event: eventName(l.Event)}
	if !l.Time.IsZero() {
		p.Time = &l.Time
	}
	head, err := json.Marshal(p)
	if err != nil {
		return err
	}
	body, err := json.Marshal(l.Event)
	if err != nil {
		return err
	}
	// Two objects become one: {a} and {b} is {a,b}.
	head = head[:len(head)-1]
	if len(body) > len("{}") {
		head = append(head, ',')
	}
	_, err = out.Write(slices.Concat(head, body[1:], []byte{'\n'}))
	return err
}

// ReadHistory reads what Write wrote, or a person did. Empty lines, and lines
// that begin with "#", are passed over. Unknown events and fields, and fields
// that are missing, are errors, which name the line.
func ReadHistory(r io.Reader) (*History, error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	var h *History
	for n := 1; in.Scan(); n++ {
		text := bytes.TrimSpace(in.Bytes())
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		var err error
		if h == nil {
			h, err = readHeader(text)
		} else {
			var l Line
			if l, err = readLine(text); err == nil {
				h.Lines = append(h.Lines, l)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrFormat, n, err)
		}
	}
	switch {
	case errors.Is(in.Err(), bufio.ErrTooLong):
		return nil, fmt.Errorf("%w: a line is longer than %d bytes", ErrFormat, maxLine)
	case in.Err() != nil:
		return nil, in.Err()
	case h == nil:
		return nil, fmt.Errorf("%w: it is empty", ErrFormat)
	}
	return h, nil
}

func readHeader(text []byte) (*History, error) {
	var p struct {
		Event   string `json:"event"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, err
	}
	switch {
	case p.Event != headerEvent:
		return nil, fmt.Errorf("the first line must be event %q", headerEvent)
	case p.Version != Version:
		return nil, fmt.Errorf("version %d, and only %d is known", p.Version, Version)
	}
	var first firstLine
	if err := exact(text, reflect.TypeFor[firstLine]()); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &first); err != nil {
		return nil, err
	}
	switch first.Guarantee {
	case GuaranteeStaged, GuaranteeLedger, GuaranteeAckAfterCommit:
	default:
		return nil, fmt.Errorf("there is no guarantee %q", first.Guarantee)
	}
	return &History{Header: first.Header}, nil
}

func readLine(text []byte) (Line, error) {
	var p prelude
	if err := json.Unmarshal(text, &p); err != nil {
		return Line{}, err
	}
	typ, ok := types[p.Event]
	if !ok {
		return Line{}, fmt.Errorf("there is no event %q", p.Event)
	}
	if err := exact(text, typ, "event", "time"); err != nil {
		return Line{}, fmt.Errorf("event %s: %w", p.Event, err)
	}
	event := reflect.New(typ)
	if err := json.Unmarshal(text, event.Interface()); err != nil {
		return Line{}, fmt.Errorf("event %s: %w", p.Event, err)
	}
	l := Line{Event: event.Elem().Interface().(Event)}
	if p.Time != nil {
		l.Time = *p.Time
	}
	if bad := wrong(l.Event); bad != "" {
		return Line{}, fmt.Errorf("event %s: %s", p.Event, bad)
	}
	return l, nil
}
