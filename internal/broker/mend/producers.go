package mend

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
)

// producers are what kfake needs to know of them all.
type producers struct {
	windows map[windowKey]*windowEntry
	epochs  map[int64]int16 // newest of each
	open    []openTxnFile
	at      map[int64]int // of open, by producer id
}

type windowKey struct {
	log Log
	id  int64
}

func newProducers() *producers {
	return &producers{windows: make(map[windowKey]*windowEntry), epochs: make(map[int64]int16), at: make(map[int64]int)}
}

// windowSize is how many batches of a producer a log remembers, so that a batch
// that comes again is not written again.
const windowSize = 5

// wrote takes in a batch of a producer.
func (p *producers) wrote(log Log, id int64, epoch int16, sequence, records int32, offset int64) {
	p.epochs[id] = max(epoch, p.epochs[id])
	k := windowKey{log, id}
	w := p.windows[k]
	if w == nil || w.Epoch != epoch {
		w = &windowEntry{ProducerID: id, Topic: log.Topic, Partition: log.Partition, Epoch: epoch, Seen: true}
		p.windows[k] = w
	}
	w.NextSeq = int32((int64(sequence) + int64(records)) % math.MaxInt32)
	w.Entries[w.At] = seenBatch{sequence, w.NextSeq, offset}
	w.At = (w.At + 1) % windowSize
	w.Count = min(w.Count+1, windowSize)
}

func (p *producers) windowEntries() []windowEntry {
	out := make([]windowEntry, 0, len(p.windows))
	for _, w := range p.windows {
		out = append(out, *w)
	}
	return out
}

// opened takes in the transactions that are open in a log.
func (p *producers) opened(log Log, open map[int64]int64) {
	for id, first := range open {
		i, ok := p.at[id]
		if !ok {
			i = len(p.open)
			p.at[id] = i
			p.open = append(p.open, openTxnFile{ProducerID: id, FirstOffsets: make(map[string]map[int32]int64)})
		}
		topics := p.open[i].FirstOffsets
		if topics[log.Topic] == nil {
			topics[log.Topic] = make(map[int32]int64)
		}
		topics[log.Topic][log.Partition] = first
	}
}

// addIDs adds to kfake's log of producer ids what the logs know better: kfake
// learns epochs, and ids of producers without transactions, also from batches.
func (p *producers) addIDs(path string) error {
	known := make(map[int64]int16)
	size, err := cut(path, func(raw json.RawMessage) error {
		var e idEntry
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		known[e.ProducerID] = e.Epoch
		return nil
	})
	if err != nil {
		return err
	}
	var add []byte
	for id, epoch := range p.epochs {
		had, ok := known[id]
		e := idEntry{"endtx", id, epoch}
		if !ok {
			e.Type = "init"
		} else if had >= epoch {
			continue
		}
		raw, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("mend: %w", err)
		}
		add = appendEntry(add, raw)
	}
	if len(add) == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("mend: %w", err)
	}
	if _, err = f.WriteAt(add, int64(size)); err != nil {
		err = fmt.Errorf("mend: %w", err)
	}
	return errors.Join(err, f.Close())
}

// An entry of kfake's logs of ids and groups: length of version and text, their
// sum, version, text.
const (
	entryHead = 8
	entryText = 10
)

func appendEntry(dst, text []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, entryText)...)
	dst = append(dst, text...)
	e := dst[at:]
	binary.LittleEndian.PutUint32(e, uint32(len(e)-entryHead))
	binary.LittleEndian.PutUint16(e[entryHead:], version)
	binary.LittleEndian.PutUint32(e[4:], crc32.Checksum(e[entryHead:], sums))
	return dst
}

// cut tells see of every entry of a log of entries and cuts off one that is not
// whole: kfake would add behind it what it could not read later.
func cut(path string, see func(json.RawMessage) error) (whole int, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("mend: %w", err)
	}
	at := 0
	for len(raw)-at >= entryText {
		size := int64(binary.LittleEndian.Uint32(raw[at:])) + entryHead
		if size > int64(len(raw)-at) {
			break
		}
		e := raw[at : at+int(size)]
		if size < entryText || crc32.Checksum(e[entryHead:], sums) != binary.LittleEndian.Uint32(e[4:]) {
			return 0, fmt.Errorf("mend: %s: byte %d: %w: the entry is not what was written", path, at, ErrCorrupt)
		}
		if err := see(e[entryText:]); err != nil {
			return 0, fmt.Errorf("mend: %s: byte %d: %w: %w", path, at, ErrCorrupt, err)
		}
		at += int(size)
	}
	if at < len(raw) {
		if err := os.Truncate(path, int64(at)); err != nil {
			return 0, fmt.Errorf("mend: %w", err)
		}
	}
	return at, nil
}
