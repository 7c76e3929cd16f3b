package check

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

const headerLine = `{"event":"history","version":1,"group":"g","guarantee":"staged"}` + "\n"

// What is no history is refused, with its line: a field that is misspelt or left
// out would otherwise be passed over, or read as zero.
func TestReadRefuses(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for text, want := range map[string]string{
		"":                                "it is empty",
		"# nothing\n\n":                   "it is empty",
		"{":                               "line 1: unexpected end of JSON input",
		`{"event":"calm"}`:                `line 1: the first line must be event "history"`,
		`{"event":"history","version":2}`: "line 1: version 2, and only 1 is known",
		`{"event":"history","version":1}`: `line 1: field "group" is missing`,
		`{"event":"history","version":1,"group":"g","guarantee":"none"}`:                                                                                `line 1: there is no guarantee "none"`,
		`{"event":"history","version":1,"group":"g","guarantee":"staged","Bound":1}`:                                                                    `line 1: there is no field "Bound"`,
		headerLine + "# a comment\n{}":                                                                                                                  `line 3: there is no event ""`,
		headerLine + `{"event":"history"}`:                                                                                                              `line 2: there is no event "history"`,
		headerLine + `{"event":"calm","x":1}`:                                                                                                           `line 2: event calm: there is no field "x"`,
		headerLine + `{"event":"begun","op":1}`:                                                                                                         `line 2: event begun: field "id" is missing`,
		headerLine + `{"event":"begun","op":"1","id":"p"}`:                                                                                              "line 2: event begun: json: cannot unmarshal string",
		headerLine + `{"event":"produced","topic":"out","partition":0,"first":0,"last":0,"Producer":1,"epoch":0}`:                                       `line 2: event produced: field "producer" is missing`,
		headerLine + `{"event":"produced","topic":"out","partition":0,"first":1,"last":0,"producer":1,"epoch":0}`:                                       "line 2: event produced: offsets 1 to 0",
		headerLine + `{"event":"produced","topic":"out","partition":0,"first":0,"last":99999999,"producer":1,"epoch":0}`:                                "line 2: event produced: offsets 0 to 99999999",
		headerLine + `{"event":"expired","topic":"in","partition":0,"first":0,"last":0,"count":1,"to":"gone"}`:                                          `line 2: event expired: state "gone"`,
		headerLine + `{"event":"decided","topic":"in","partition":0,"first":0,"last":0,"count":1,"to":"archived","verdict":"maybe"}`:                    `line 2: event decided: verdict "maybe"`,
		headerLine + `{"event":"lost","topic":"in","partition":0,"first":0,"last":0,"count":1,"to":"available","producer":1,"epoch":0,"why":"mood"}`:    `line 2: event lost: why "mood"`,
		headerLine + `{"event":"reported","op":1,"outcome":"fine"}`:                                                                                     `line 2: event reported: outcome "fine"`,
		headerLine + `{"event":"reported","op":1,"txn":{"producer":1},"outcome":"unknown"}`:                                                             `line 2: event reported: field "txn": field "epoch" is missing`,
		headerLine + `{"event":"read","reader":"r","topic":"","partition":0,"offset":0}`:                                                                "line 2: event read: offset 0 of",
		headerLine + `{"event":"reset","topic":"in","partition":0,"offset":-2}`:                                                                         "line 2: event reset: offset -2 of",
		headerLine + `{"event":"reset","topic":"","partition":0,"offset":-1}`:                                                                           "line 2: event reset: offset",
		headerLine + `{"event":"started","topic":"in","partition":0,"offset":-1}`:                                                                       "line 2: event started: offset -1 of",
		headerLine + `{"event":"log","topic":"out","partition":0,"start":0,"stable":3,"end":2}`:                                                         "line 2: event log: start 0, stable 3 and end 2",
		headerLine + `{"event":"share","topic":"in","partition":0,"start":0,"end":2,"acquired":-1,"staged":0}`:                                          "line 2: event share: -1 acquired",
		headerLine + `{"event":"visible","topic":"out","partition":0,"first":0,"last":0,"nth":1}`:                                                       "line 2: event visible: nth and of are of a source",
		headerLine + `{"event":"visible","topic":"out","partition":0,"first":0,"last":1,"from":{"topic":"in","partition":0,"offset":0}}`:                "line 2: event visible: from is of one record",
		headerLine + `{"event":"visible","topic":"out","partition":0,"first":0,"last":0,"nth":3,"of":2,"from":{"topic":"in","partition":0,"offset":0}}`: "line 2: event visible: nth 3 of 2",
		headerLine + strings.Repeat(" ", maxLine+1):                                                                                                     "a line is longer than",
	} {
		_, err := ReadHistory(strings.NewReader(text))
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s\n%v, want %s", text, err, want)
		}
	}
	broken := errors.New("broken")
	if _, err := ReadHistory(iotest.ErrReader(broken)); !errors.Is(err, broken) || errors.Is(err, ErrFormat) {
		t.Errorf("a reader's own error: %v", err)
	}
}

// What could not be read is not written.
func TestWriteRefuses(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	h := &History{Header: Header{Group: "g", Guarantee: GuaranteeStaged}, Lines: []Line{{Event: Calm{}}, {Event: Expired{Turn{To: "gone"}}}}}
	if err := h.Write(new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), `line 2 of the history, expired: state "gone"`) {
		t.Error(err)
	}
}

func TestRecorder(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	var r Recorder
	r.Add(Calm{})
	before := r.Lines()
	r.Add(Begun{1, "p"}, Drained{})
	if got := r.Lines(); len(before) != 1 || len(got) != 3 || got[0].Event != (Calm{}) || got[2].Event != (Drained{}) || got[2].Time.Before(got[0].Time) || got[0].Time.IsZero() {
		t.Errorf("%+v, before %+v", got, before)
	}
}

// FuzzReadHistory: whatever is read is a history that can be judged, and is read
// the same again once it is written.
func FuzzReadHistory(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.jsonl")
	if err != nil || len(files) == 0 {
		f.Fatal(len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := ReadHistory(bytes.NewReader(text))
		if err != nil {
			return
		}
		var once, twice bytes.Buffer
		if err := h.Write(&once); err != nil {
			t.Fatalf("read, and not to be written: %v", err)
		}
		again, err := ReadHistory(bytes.NewReader(once.Bytes()))
		if err != nil {
			t.Fatalf("written, and not to be read: %v\n%s", err, once.Bytes())
		}
		if err := again.Write(&twice); err != nil || !bytes.Equal(once.Bytes(), twice.Bytes()) {
			t.Fatalf("%v: written\n%s\nand then\n%s", err, once.Bytes(), twice.Bytes())
		}
		if offsets(h) > 10_000 {
			return // judging takes time for each
		}
		if a, b := Judge(h), Judge(again); a.String() != b.String() {
			t.Fatalf("judged as\n%v\nand then as\n%v", a, b)
		}
	})
}

// offsets is how many a history's ranges have.
func offsets(h *History) (n int64) {
	for _, l := range h.Lines {
		switch e := l.Event.(type) {
		case Source:
			n += e.Last - e.First + 1
		case Visible:
			n += e.Last - e.First + 1
		case Entry:
			n += e.Last - e.First + 1
		case Produced:
			n += e.Last - e.First + 1
		case Delivered, Staged, Unstaged, Resolved, Lost, Decided, Expired, Released, Forgotten:
			at := turnOf(e)
			n += at.Last - at.First + 1
		}
	}
	return n
}
