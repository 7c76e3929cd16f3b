package mend

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// state is what the batches of a log say.
type state struct {
	log      Log
	start    int64 // of the first batch; -1: none
	end      int64 // behind the last batch
	epoch    int32 // of the newest leader
	newest   int64 // timestamp
	born     int64 // timestamp of the first batch
	segments []segmentInfo
	open     map[int64]int64 // first offset of the transaction under way, by producer id
	aborted  []abortedTxn
	markers  map[int64]int16 // newest epoch, by producer id
}

// mendLog reads a partition's log and writes what kfake needs beside it.
func mendLog(dir string, log Log, known Known, all *producers) (*state, error) {
	folder := filepath.Join(dir, "partitions", fmt.Sprintf("%s-%d", url.PathEscape(log.Topic), log.Partition))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("mend: %w", err)
	}
	bases, err := segments(folder)
	if err != nil {
		return nil, err
	}
	s := &state{log: log, start: -1, open: make(map[int64]int64), markers: make(map[int64]int16)}
	for i, base := range bases {
		if err := s.segment(filepath.Join(folder, strconv.FormatInt(base, 10)), base, i == len(bases)-1, all); err != nil {
			return nil, err
		}
	}
	start := max(known.Start, s.start)
	if s.start < 0 { // kfake takes a log without files for one that never had a record
		s.end = max(s.end, known.End, known.Start)
		start = s.end
		name := filepath.Join(folder, strconv.FormatInt(s.end, 10))
		for _, ext := range []string{".dat", ".idx"} {
			if err := os.WriteFile(name+ext, nil, 0o644); err != nil {
				return nil, fmt.Errorf("mend: %w", err)
			}
		}
		if !slices.ContainsFunc(s.segments, func(x segmentInfo) bool { return x.BaseOffset == s.end }) {
			s.segments = append(s.segments, segmentInfo{BaseOffset: s.end})
		}
	}
	stable := s.end
	for _, first := range s.open {
		stable = min(stable, first)
	}
	all.opened(log, s.open)
	slices.SortFunc(s.aborted, func(a, b abortedTxn) int { return cmp.Compare(a.LastOffset, b.LastOffset) })
	return s, writeJSON(filepath.Join(folder, "snapshot.json"), snapshotFile{
		Version: version, HighWatermark: s.end, LastStableOffset: stable, LogStartOffset: start,
		Epoch: max(s.epoch, known.Epoch), LeaderNode: known.Leader, MaxTimestamp: s.newest, CreatedAt: time.UnixMilli(s.born),
		AbortedTxns: s.aborted, Segments: s.segments,
	})
}

// segments gives the base offsets of a log's files, in order.
func segments(folder string) (bases []int64, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("mend: %w", err)
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".dat")
		if !ok {
			continue
		}
		if base, err := strconv.ParseInt(name, 10, 64); err == nil {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	return bases, nil
}

// where a batch has what is read here
const (
	atSize      = 8
	atEpoch     = 12
	atSum       = 17
	atAttrs     = 21
	atLast      = 23
	atTime      = 35
	atProducer  = 43
	atProdEpoch = 51
	atSequence  = 53
	atCount     = 57
	atRecords   = 61

	attrTxn     = 0x10
	attrControl = 0x20
)

var sums = crc32.MakeTable(crc32.Castagnoli)

// segment reads one file of a log. Only the last may end in a batch that is not
// whole, and ends before it then.
func (s *state) segment(name string, base int64, last bool, all *producers) error {
	path := name + ".dat"
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("mend: %w", err)
	}
	info := segmentInfo{BaseOffset: base}
	var index []byte
	at := 0
	for at < len(raw) {
		size, err := whole(raw[at:])
		if err == nil && (size > 0 || !last) {
			err = s.batch(raw[at:at+size], all)
		}
		if err != nil {
			return fmt.Errorf("mend: %s: byte %d: %w", path, at, err)
		}
		if size == 0 {
			if err := os.Truncate(path, int64(at)); err != nil {
				return fmt.Errorf("mend: %w", err)
			}
			break
		}
		b := raw[at : at+size]
		epoch := int32(binary.BigEndian.Uint32(b[atEpoch:]))
		if at == 0 {
			info.MinEpoch, info.MaxEpoch = epoch, epoch
		}
		info.MinEpoch, info.MaxEpoch = min(info.MinEpoch, epoch), max(info.MaxEpoch, epoch)
		index = appendIndex(index, b, epoch)
		at += size
	}
	info.Size = int64(at)
	s.segments = append(s.segments, info)
	if had, err := os.ReadFile(name + ".idx"); err == nil && len(had) == len(index) {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("mend: %w", err)
	}
	if err := os.WriteFile(name+".idx", index, 0o644); err != nil {
		return fmt.Errorf("mend: %w", err)
	}
	return nil
}

// whole gives the size of the batch that raw begins with; 0 where raw ends
// before it does.
func whole(raw []byte) (int, error) {
	if len(raw) < atRecords {
		return 0, nil
	}
	size := int64(binary.BigEndian.Uint32(raw[atSize:])) + atEpoch
	if size < atRecords {
		return 0, fmt.Errorf("%w: no batch is so short", ErrCorrupt)
	}
	if size > int64(len(raw)) {
		return 0, nil
	}
	if crc32.Checksum(raw[atAttrs:size], sums) != binary.BigEndian.Uint32(raw[atSum:]) {
		return 0, fmt.Errorf("%w: the batch is not what was written", ErrCorrupt)
	}
	return int(size), nil
}

// appendIndex is the entry of a batch in the file beside its segment. The time in
// it is not read by kfake.
func appendIndex(dst, b []byte, epoch int32) []byte {
	var e [15]byte
	e[0] = version
	binary.LittleEndian.PutUint32(e[2:], uint32(epoch))
	if attrs := binary.BigEndian.Uint16(b[atAttrs:]); attrs&attrTxn != 0 && attrs&attrControl == 0 {
		e[14] = 1
	}
	e[1] = byte(crc32.Checksum(e[2:], sums))
	return append(dst, e[:]...)
}

// batch takes in what a batch says.
func (s *state) batch(b []byte, all *producers) error {
	if len(b) == 0 {
		return fmt.Errorf("%w: the file ends in the midst of a batch, and another follows it", ErrCorrupt)
	}
	first := int64(binary.BigEndian.Uint64(b))
	if first < s.end {
		return fmt.Errorf("%w: offset %d comes after offset %d", ErrCorrupt, first, s.end-1)
	}
	at := int64(binary.BigEndian.Uint64(b[atTime:]))
	if s.start < 0 {
		s.start, s.born = first, at
	}
	s.end = first + int64(binary.BigEndian.Uint32(b[atLast:])) + 1
	s.epoch = max(s.epoch, int32(binary.BigEndian.Uint32(b[atEpoch:])))
	s.newest = max(s.newest, at)
	id, epoch := int64(binary.BigEndian.Uint64(b[atProducer:])), int16(binary.BigEndian.Uint16(b[atProdEpoch:]))
	attrs := binary.BigEndian.Uint16(b[atAttrs:])
	if attrs&attrControl != 0 {
		return s.marker(first, id, epoch, b[atRecords:])
	}
	if id < 0 {
		return nil
	}
	if _, open := s.open[id]; attrs&attrTxn != 0 && !open {
		s.open[id] = first
	}
	all.wrote(s.log, id, epoch, int32(binary.BigEndian.Uint32(b[atSequence:])), int32(binary.BigEndian.Uint32(b[atCount:])), first)
	return nil
}

// marker ends the transaction of its producer in this log.
func (s *state) marker(at, id int64, epoch int16, records []byte) error {
	var r kmsg.Record
	var key kmsg.ControlRecordKey
	if err := r.ReadFrom(records); err != nil {
		return fmt.Errorf("%w: control record: %w", ErrCorrupt, err)
	}
	if err := key.ReadFrom(r.Key); err != nil {
		return fmt.Errorf("%w: control record's key: %w", ErrCorrupt, err)
	}
	if first, open := s.open[id]; open && key.Type == kmsg.ControlRecordKeyTypeAbort {
		s.aborted = append(s.aborted, abortedTxn{id, first, at})
	}
	delete(s.open, id)
	s.markers[id] = max(epoch, s.markers[id])
	return nil
}
