package endurance

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
)

// kind is what an entry of a member's log says of its offsets.
type kind uint8

const (
	tried    kind = iota + 1 // about to be accepted
	accepted                 // a broker said that they are
	refused                  // a broker, or the consumer, said that they are not
	unknown                  // nobody can say
)

// entry is one line of a member's log. Both ends of the range are included.
type entry struct {
	kind        kind
	deliveries  uint8 // the most of any of the records; for tried
	partition   int32
	first, last int64
}

const entrySize = 1 + 1 + 4 + 8 + 8

func (e entry) append(b []byte) []byte {
	b = append(b, byte(e.kind), e.deliveries)
	b = binary.BigEndian.AppendUint32(b, uint32(e.partition))
	b = binary.BigEndian.AppendUint64(b, uint64(e.first))
	return binary.BigEndian.AppendUint64(b, uint64(e.last))
}

func decode(b []byte) entry {
	return entry{
		kind(b[0]), b[1], int32(binary.BigEndian.Uint32(b[2:])),
		int64(binary.BigEndian.Uint64(b[6:])), int64(binary.BigEndian.Uint64(b[14:])),
	}
}

// logFile is a member's log. What write has returned for is the system's, and
// survives the member. Safe for concurrent use.
type logFile struct {
	mu  sync.Mutex
	f   *os.File
	err error // the first failure: a member that cannot log must not go on
}

func createLog(name string) (*logFile, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &logFile{f: f}, nil
}

func (l *logFile) write(entries ...entry) error {
	b := make([]byte, 0, len(entries)*entrySize)
	for _, e := range entries {
		b = e.append(b)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		_, l.err = l.f.Write(b)
	}
	return l.err
}

func (l *logFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}

// readLog reads a member's log. Of one that was killed the end may be torn off.
func readLog(name string) ([]entry, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var entries []entry
	for ; len(b) >= entrySize; b = b[entrySize:] {
		e := decode(b)
		if e.kind < tried || e.kind > unknown || e.partition < 0 || e.first < 0 || e.last < e.first {
			return nil, fmt.Errorf("%s: no entry: %+v", name, e)
		}
		entries = append(entries, e)
	}
	return entries, nil
}
