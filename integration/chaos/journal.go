package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// Words that begin a line of a journal.
const (
	wordKill    = "kill"    // where: it kills itself there
	wordStop    = "stop"    // where, milliseconds: it stops itself there, until its parent lets it go on; 0: when that likes
	wordDeliver = "deliver" // round, topic, partition, first and last offset, delivery count: brokers gave it these, not for the first time
	wordCount   = "count"   // what, how many: something happened
	wordEnd     = "end"     // why: the processor ended by itself
)

// transactionsSettled is what of a process's progress is counted.
const transactionsSettled = "transactions settled"

// journal is what a process writes. Safe for concurrent use.
type journal struct {
	mu sync.Mutex
	f  *os.File
}

func openJournal(name string) (*journal, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &journal{f: f}, nil
}

// line writes one, in one call of the system. A process whose journal cannot be
// written must not go on: what it does would count as not done.
func (j *journal) line(word string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintln(append([]any{word}, args...)...), "\n", " ")
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.f.WriteString(strings.TrimSpace(text) + "\n"); err != nil {
		panic(fmt.Sprintf("journal: %v", err))
	}
}

// count says that something happened n times; nothing is said of 0.
func (j *journal) count(what string, n int64) {
	if n > 0 {
		j.line(wordCount, strings.ReplaceAll(what, " ", "-"), n)
	}
}

func (j *journal) close() error { return j.f.Close() }

// follower reads a journal while it grows.
type follower struct {
	name string
	at   int64
}

// more gives the lines that came since the last call, as words. The last line of
// a process that was killed may be torn: it has no end, and does not count.
func (f *follower) more() (lines [][]string, err error) {
	file, err := os.Open(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // not begun yet
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	text := make([]byte, info.Size()-f.at)
	if n, err := file.ReadAt(text, f.at); n < len(text) {
		return nil, err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	f.at += int64(whole)
	for line := range bytes.Lines(text[:whole]) {
		lines = append(lines, strings.Fields(string(line)))
	}
	return lines, nil
}
