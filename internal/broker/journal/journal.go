// Package journal keeps small states by key in one file, so that they survive
// the process, however it ends: what was flushed before the end is there after
// it. Files are written and not synced: they survive SIGKILL, and not the
// machine's power.
package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
)

// Journal is the latest value of each key, and a file of all changes. Put and
// Delete change memory only; Flush returns when all before it is in the file.
// Where the file is long and mostly of the past it is written anew. Safe for
// concurrent use.
type Journal struct {
	path string

	mu      sync.Mutex
	values  map[string][]byte
	live    int64  // bytes that the values need in a file
	pending []byte // changes that are not in the file yet
	changes uint64 // ever made
	written uint64 // of these, in the file
	turn    chan struct{}
	err     error // why nothing is written any more
	closed  bool
	onWrite func(file io.Writer, changes []byte) (int, error)

	kick chan struct{} // wakes the writer
	stop chan struct{} // closed when it is to end
	done chan struct{} // closed when it has

	// the writer's own
	file *os.File
	size int64
}

// ErrCorrupt is of a file that is not as it was written. A file that only ends
// too early, as a kill in the midst of a write leaves it, is not corrupt: its
// last change was answered to nobody, and is cut off.
var ErrCorrupt = errors.New("corrupt")

// errClosed is of a Journal that takes nothing any more.
var errClosed = errors.New("journal: closed")

// compactAt is the size below which a file is not written anew.
const compactAt = 1 << 20

// Open reads the file, which is made where there is none, and cuts off what a
// kill left half-written. Nobody else may have the file open: see Lock.
func Open(path string) (*Journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{
		path: path, values: make(map[string][]byte), turn: make(chan struct{}),
		kick: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}), file: file,
	}
	if err := j.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("journal %s: %w", path, err), file.Close())
	}
	go j.write()
	return j, nil
}

// load reads what is in the file and leaves it ready to be added to.
func (j *Journal) load() error {
	raw, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	whole, err := read(raw, func(c change) {
		if c.gone {
			j.remove(c.key)
		} else {
			j.set(c.key, c.value)
		}
	})
	if err != nil {
		return err
	}
	if err := j.file.Truncate(int64(whole)); err != nil {
		return err
	}
	if whole == 0 {
		if _, err := j.file.WriteAt([]byte(magic), 0); err != nil {
			return err
		}
		whole = len(magic)
	}
	j.size = int64(whole)
	_, err = j.file.Seek(j.size, io.SeekStart)
	return err
}

func (j *Journal) set(key string, value []byte) {
	j.remove(key)
	j.values[key] = value
	j.live += frameSize(key, value)
}

func (j *Journal) remove(key string) {
	if old, ok := j.values[key]; ok {
		j.live -= frameSize(key, old)
		delete(j.values, key)
	}
}

// Get gives the value of a key, which must not be changed.
func (j *Journal) Get(key string) (value []byte, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	value, ok = j.values[key]
	return value, ok
}

// All gives every key and value, which must not be changed.
func (j *Journal) All() map[string][]byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.values)
}

// Put sets the value of a key and keeps the slice. The value that it has already
// is no change.
func (j *Journal) Put(key string, value []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if old, ok := j.values[key]; ok && bytes.Equal(old, value) {
		return
	}
	j.set(key, value)
	j.add(change{key: key, value: value})
}

// Delete removes a key.
func (j *Journal) Delete(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.values[key]; ok {
		j.remove(key)
		j.add(change{key: key, gone: true})
	}
}

// add is under the lock. Once nothing is written any more, nothing is gathered.
func (j *Journal) add(c change) {
	if j.err != nil {
		return
	}
	j.changes++
	j.pending = appendChange(j.pending, c)
}

// Flush returns when the file has all changes that were made before. An error is
// for good: from then on no change is in the file, and none may be answered for.
func (j *Journal) Flush() error {
	j.mu.Lock()
	want := j.changes
	for j.err == nil && j.written < want {
		turn := j.turn
		j.mu.Unlock()
		select {
		case j.kick <- struct{}{}:
		default: // the writer is awake, or will be
		}
		<-turn
		j.mu.Lock()
	}
	defer j.mu.Unlock()
	return j.err
}

// Close flushes and ends. Idempotent.
func (j *Journal) Close() error {
	err := j.Flush()
	j.mu.Lock()
	if j.err == nil {
		j.err = errClosed
	}
	if !j.closed {
		j.closed = true
		close(j.stop)
	}
	j.mu.Unlock()
	<-j.done
	if errors.Is(err, errClosed) {
		return nil
	}
	return err
}

// OnWrite has fn add changes to the file, in place of the file's own Write. A test
// that ends its process before, amid or after a write is what it is for. A file
// that is written anew is not added to.
func (j *Journal) OnWrite(fn func(file io.Writer, changes []byte) (int, error)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.onWrite = fn
}

// write is the writer: it alone touches the file, and holds no lock over that.
func (j *Journal) write() {
	defer close(j.done)
	defer func() { _ = j.file.Close() }() // what counts was written
	for {
		select {
		case <-j.kick:
			j.writePending()
		case <-j.stop:
			j.mu.Lock()
			defer j.mu.Unlock()
			close(j.turn) // for whoever came too late
			return
		}
	}
}

func (j *Journal) writePending() {
	j.mu.Lock()
	out, upTo, onWrite := j.pending, j.changes, j.onWrite
	j.pending = nil
	var all []byte
	if size := j.size + int64(len(out)); size > compactAt && size > 4*j.live {
		all = j.snapshot()
	}
	j.mu.Unlock()
	err := j.save(out, all, onWrite)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.written = upTo; err != nil && j.err == nil {
		j.err = fmt.Errorf("journal %s: %w", j.path, err)
	}
	close(j.turn)
	j.turn = make(chan struct{})
}

// snapshot is a whole file of the present values; under the lock.
func (j *Journal) snapshot() []byte {
	out := append(make([]byte, 0, int64(len(magic))+j.live), magic...)
	for _, key := range slices.Sorted(maps.Keys(j.values)) {
		out = appendChange(out, change{key: key, value: j.values[key]})
	}
	return out
}

// save adds out to the file, by onWrite if there is one, or has all take its
// place in one step.
func (j *Journal) save(out, all []byte, onWrite func(io.Writer, []byte) (int, error)) error {
	if all == nil {
		if onWrite == nil {
			onWrite = io.Writer.Write
		}
		n, err := onWrite(j.file, out)
		j.size += int64(n)
		return err
	}
	next, err := os.OpenFile(j.path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if _, err = next.Write(all); err == nil {
		err = os.Rename(next.Name(), j.path)
	}
	if err != nil {
		return errors.Join(err, next.Close())
	}
	old := j.file
	j.file, j.size = next, int64(len(all))
	return old.Close()
}
