package mend

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// batch is what a test's log has at an offset; its records' bytes mean nothing.
type batch struct {
	first    int64
	records  int32
	producer int64
	epoch    int16
	sequence int32
	leader   int32 // epoch
	txn      bool
	marker   string // commit or abort
}

func (b batch) bytes() []byte {
	rb := kmsg.RecordBatch{
		FirstOffset: b.first, PartitionLeaderEpoch: b.leader, Magic: 2, LastOffsetDelta: b.records - 1, NumRecords: b.records,
		ProducerID: b.producer, ProducerEpoch: b.epoch, FirstSequence: b.sequence, FirstTimestamp: 1000 + b.first, MaxTimestamp: 2000 + b.first,
		Records: []byte("records"),
	}
	if b.txn {
		rb.Attributes |= attrTxn
	}
	if b.marker != "" {
		key := kmsg.ControlRecordKey{Type: kmsg.ControlRecordKeyTypeAbort}
		if b.marker == "commit" {
			key.Type = kmsg.ControlRecordKeyTypeCommit
		}
		r := kmsg.Record{Key: key.AppendTo(nil), Value: []byte{}}
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		rb.Attributes, rb.NumRecords, rb.LastOffsetDelta, rb.Records = attrTxn|attrControl, 1, 0, r.AppendTo(nil)
	}
	rb.Length = int32(len(rb.AppendTo(nil)) - atEpoch)
	raw := rb.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[atSum:], crc32.Checksum(raw[atAttrs:], sums))
	return raw
}

func bytes(all ...batch) (raw []byte) {
	for _, b := range all {
		raw = append(raw, b.bytes()...)
	}
	return raw
}

// folder is one with topic "t" of one partition, with these segments.
func folder(t *testing.T, segments map[string][]byte) (dir, part string) {
	t.Helper()
	dir = t.TempDir()
	part = filepath.Join(dir, "partitions", "t-0")
	if err := os.MkdirAll(part, 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "topics.json"), []byte(`{"version":1,"topics":[{"name":"t","id":"AAAAAAAAAAAAAAAAAAAAAQ==","partitions":1}]}`))
	for name, raw := range segments {
		put(t, filepath.Join(part, name), raw)
	}
	return dir, part
}

func put(t *testing.T, path string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

func get[T any](t *testing.T, path string) (v T) {
	t.Helper()
	if err := readJSON(path, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func size(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Size())
}

var log = Log{Topic: "t", ID: [16]byte{15: 1}}

func knows(k Known) func(Log) Known { return func(Log) Known { return k } }

// All that a log says beside its records is read from it: where it is stable,
// what was aborted, whose transaction is open, what may come again.
func TestDir(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	first := bytes(
		batch{first: 0, records: 2, producer: 7, txn: true, leader: 1},
		batch{first: 2, records: 1, producer: -1, epoch: -1, sequence: -1, leader: 1},
		batch{first: 3, producer: 7, epoch: 1, marker: "abort", leader: 1},
		batch{first: 4, records: 3, producer: 7, epoch: 1, txn: true, leader: 2},
	)
	second := bytes(
		batch{first: 7, producer: 7, epoch: 2, marker: "commit", leader: 2},
		batch{first: 8, records: 5, producer: 8, sequence: 10, leader: 2}, // without a transaction
		batch{first: 13, records: 1, producer: 7, epoch: 2, txn: true, leader: 2},
		batch{first: 14, records: 2, producer: 7, epoch: 2, sequence: 1, txn: true, leader: 2},
	)
	dir, part := folder(t, map[string][]byte{"0.dat": first, "7.dat": append(slices.Clone(second), second[:70]...), "7.idx": []byte("cut short")})
	put(t, filepath.Join(dir, "pids.log"), append(entries(`{"type":"init","pid":7,"epoch":0,"txid":"x"}`), 1, 2, 3))
	put(t, filepath.Join(dir, "groups.log"), append(entries(`{"type":"meta","g":"g"}`), 9))
	found, err := Dir(dir, knows(Known{Leader: 2, Epoch: 5, Start: 1}))
	if err != nil {
		t.Fatal(err)
	}
	if got := found[log].Markers; len(found) != 1 || !maps.Equal(got, map[int64]int16{7: 2}) {
		t.Errorf("found %v", found)
	}
	snap := get[snapshotFile](t, filepath.Join(part, "snapshot.json"))
	want := snapshotFile{
		Version: 1, HighWatermark: 16, LastStableOffset: 13, LogStartOffset: 1, Epoch: 5, LeaderNode: 2, MaxTimestamp: 2014, CreatedAt: snap.CreatedAt,
		AbortedTxns: []abortedTxn{{7, 0, 3}}, Segments: []segmentInfo{{0, int64(len(first)), 1, 2}, {7, int64(len(second)), 2, 2}},
	}
	if !reflect.DeepEqual(snap, want) || snap.CreatedAt.UnixMilli() != 2000 {
		t.Errorf("snapshot\n%+v, want\n%+v", snap, want)
	}
	if got := size(t, filepath.Join(part, "7.dat")); got != len(second) {
		t.Errorf("the last segment has %d bytes, want %d", got, len(second))
	}
	index, err := os.ReadFile(filepath.Join(part, "7.idx"))
	if err != nil || len(index) != 4*15 {
		t.Fatalf("%d bytes of index, %v", len(index), err)
	}
	for i, inTxn := range []byte{0, 0, 1, 1} {
		if e := index[i*15 : i*15+15]; e[0] != 1 || e[14] != inTxn || binary.LittleEndian.Uint32(e[2:]) != 2 || e[1] != byte(crc32.Checksum(e[2:], sums)) {
			t.Errorf("index %d: %v", i, e)
		}
	}
	session := get[sessionFile](t, filepath.Join(dir, "session_state.json"))
	if want := []openTxnFile{{7, map[string]map[int32]int64{"t": {0: 13}}}}; !reflect.DeepEqual(session.InProgress, want) {
		t.Errorf("open: %+v, want %+v", session.InProgress, want)
	}
	windows := get[windowsFile](t, filepath.Join(dir, "seq_windows.json")).Windows
	slices.SortFunc(windows, func(a, b windowEntry) int { return int(a.ProducerID - b.ProducerID) })
	wantWindows := []windowEntry{
		{ProducerID: 7, Topic: "t", Epoch: 2, Seen: true, NextSeq: 3, At: 2, Count: 2, Entries: [5]seenBatch{{0, 1, 13}, {1, 3, 14}}},
		{ProducerID: 8, Topic: "t", Epoch: 0, Seen: true, NextSeq: 15, At: 1, Count: 1, Entries: [5]seenBatch{{10, 15, 8}}},
	}
	if !reflect.DeepEqual(windows, wantWindows) {
		t.Errorf("windows %+v, want %+v", windows, wantWindows)
	}
	var ids []idEntry
	if _, err := cut(filepath.Join(dir, "pids.log"), func(raw json.RawMessage) error {
		var e idEntry
		ids = append(ids, e)
		return json.Unmarshal(raw, &ids[len(ids)-1])
	}); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(ids, func(a, b idEntry) int { return strings.Compare(a.Type, b.Type) })
	if len(ids) != 3 || ids[0] != (idEntry{"endtx", 7, 2}) || !slices.Contains(ids, idEntry{"init", 8, 0}) {
		t.Errorf("ids %+v", ids)
	}
	if got, want := size(t, filepath.Join(dir, "groups.log")), len(entries(`{"type":"meta","g":"g"}`)); got != want {
		t.Errorf("the groups' log has %d bytes, want %d", got, want)
	}
	// Mended is mended: a start that is cut short is another start.
	before := size(t, filepath.Join(dir, "pids.log"))
	if _, err := Dir(dir, knows(Known{Leader: 2, Epoch: 5, Start: 1})); err != nil {
		t.Fatal(err)
	}
	if again := get[snapshotFile](t, filepath.Join(part, "snapshot.json")); !reflect.DeepEqual(again, snap) || size(t, filepath.Join(dir, "pids.log")) != before {
		t.Errorf("again: %+v", again)
	}
}

func entries(all ...string) (raw []byte) {
	for _, text := range all {
		raw = appendEntry(raw, []byte(text))
	}
	return raw
}

// The window has the last five batches of the newest epoch.
func TestWindow(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	p := newProducers()
	p.wrote(log, 7, 0, 0, 3, 100)
	for i := range int32(6) {
		p.wrote(log, 7, 1, 2*i, 2, int64(200+i))
	}
	p.wrote(log, 7, 1, 1<<31-2, 2, 300) // sequences begin anew
	want := windowEntry{ProducerID: 7, Topic: "t", Epoch: 1, Seen: true, NextSeq: 1, At: 2, Count: 5,
		Entries: [5]seenBatch{{10, 12, 205}, {1<<31 - 2, 1, 300}, {4, 6, 202}, {6, 8, 203}, {8, 10, 204}}}
	if got := p.windowEntries(); len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A log without records begins where it ended, as whoever knows of it says.
func TestEmptyLog(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	for name, known := range map[string]Known{"never written": {}, "emptied": {Start: 3, End: 40}, "emptied by retention": {End: 40}} {
		dir, part := folder(t, nil)
		if _, err := Dir(dir, knows(known)); err != nil {
			t.Fatal(err)
		}
		snap := get[snapshotFile](t, filepath.Join(part, "snapshot.json"))
		if snap.HighWatermark != known.End || snap.LogStartOffset != known.End || snap.LastStableOffset != known.End || len(snap.Segments) != 1 || snap.Segments[0].BaseOffset != known.End {
			t.Errorf("%s: %+v", name, snap)
		}
		if _, err := Dir(dir, knows(known)); err != nil {
			t.Fatal(err)
		}
		if again := get[snapshotFile](t, filepath.Join(part, "snapshot.json")); len(again.Segments) != 1 {
			t.Errorf("%s, again: %+v", name, again)
		}
	}
}

// A folder that is new has nothing to mend.
func TestNewFolder(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	dir := filepath.Join(t.TempDir(), "new")
	if found, err := Dir(dir, knows(Known{})); found != nil || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
}

// What no kill does to a file is refused, and the file named.
func TestCorrupt(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	a, b := bytes(batch{first: 0, records: 1, producer: -1}), bytes(batch{first: 1, records: 1, producer: -1})
	flip := func(raw []byte, at int) []byte {
		out := slices.Clone(raw)
		out[at] ^= 0x40
		return out
	}
	for name, tc := range map[string]struct {
		file     string
		segments map[string][]byte
	}{
		"records":                {"0.dat", map[string][]byte{"0.dat": append(flip(a, atRecords), b...)}},
		"last batch":             {"0.dat", map[string][]byte{"0.dat": append(slices.Clone(a), flip(b, atRecords)...)}},
		"length":                 {"0.dat", map[string][]byte{"0.dat": append(slices.Clone(a[:atSize]), append([]byte{0, 0, 0, 1}, a[12:]...)...)}},
		"first of two files cut": {"0.dat", map[string][]byte{"0.dat": a[:len(a)-1], "1.dat": b}},
		"offsets":                {"1.dat", map[string][]byte{"0.dat": append(slices.Clone(a), b...), "1.dat": b}},
		"marker":                 {"0.dat", map[string][]byte{"0.dat": seal(flip(bytes(batch{marker: "abort"}), atRecords+4))}},
	} {
		dir, part := folder(t, tc.segments)
		if _, err := Dir(dir, knows(Known{})); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), filepath.Join(part, tc.file)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, file := range []string{"pids.log", "groups.log"} {
		dir, _ := folder(t, nil)
		put(t, filepath.Join(dir, file), flip(entries(`{"type":"init","pid":7}`, `{}`), 12))
		if _, err := Dir(dir, knows(Known{})); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, text := range []string{`{`, `{"topics":[{"name":"t","id":"AAAA","partitions":1}]}`} {
		dir, _ := folder(t, nil)
		put(t, filepath.Join(dir, "topics.json"), []byte(text))
		if _, err := Dir(dir, knows(Known{})); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "topics.json") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// seal makes the sum of a batch right again.
func seal(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[atSum:], crc32.Checksum(raw[atAttrs:], sums))
	return raw
}
