// Package mend makes kfake's folder whole before kfake opens it. kfake writes
// batches to their logs before it answers, and the rest at a clean stop only:
// after a kill it would end every open transaction as aborted, take repeated
// batches for new ones and let logs begin where they did long ago. All of that
// can be read from the logs, and what cannot the caller knows. It is done at every
// start, so that a stop is no other than a kill.
//
// What is written here is the format of the kfake version in go.mod.
package mend

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Log is the log of a topic's partition.
type Log struct {
	Topic     string
	ID        [16]byte // of the topic
	Partition int32
}

// Known is what a log does not say itself.
type Known struct {
	Leader int32 // node
	Epoch  int32 // of the leader; at least
	Start  int64 // of the log; at least
	End    int64 // of the log; at least: a log may have lost all its records
}

// Found is what logs say beside their records.
type Found struct {
	// Markers are the newest epochs of the transaction markers, by producer id.
	Markers map[int64]int16
}

// ErrCorrupt is of a file in which something in the midst is not as it was
// written. What a kill leaves, a file that ends too early, is mended.
var ErrCorrupt = errors.New("corrupt")

// Dir mends the folder, if there is one: a new one has no logs.
func Dir(dir string, know func(Log) Known) (map[Log]Found, error) {
	var topics topicsFile
	switch err := readJSON(filepath.Join(dir, "topics.json"), &topics); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	all := make(map[Log]Found)
	state := newProducers()
	for _, t := range topics.Topics {
		if len(t.ID) != 16 {
			return nil, fmt.Errorf("mend: %s: %w: the id of topic %s", filepath.Join(dir, "topics.json"), ErrCorrupt, t.Name)
		}
		for p := range t.Partitions {
			log := Log{t.Name, [16]byte(t.ID), p}
			s, err := mendLog(dir, log, know(log), state)
			if err != nil {
				return nil, err
			}
			all[log] = Found{Markers: s.markers}
		}
	}
	if _, err := cut(filepath.Join(dir, "groups.log"), func(json.RawMessage) error { return nil }); err != nil {
		return nil, err
	}
	if err := state.addIDs(filepath.Join(dir, "pids.log")); err != nil {
		return nil, err
	}
	if err := writeJSON(filepath.Join(dir, "seq_windows.json"), windowsFile{Version: version, Windows: state.windowEntries()}); err != nil {
		return nil, err
	}
	// The time is one at which nothing is kept for being recent.
	return all, writeJSON(filepath.Join(dir, "session_state.json"), sessionFile{ShutdownAt: time.Now(), InProgress: state.open})
}

func readJSON(path string, v any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("mend: %w", err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("mend: %s: %w: %w", path, ErrCorrupt, err)
	}
	return nil
}

// writeJSON need not be one step: whoever ends in the midst of it mends again.
func writeJSON(path string, v any) error {
	raw, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, raw, 0o644)
	}
	if err != nil {
		return fmt.Errorf("mend: %w", err)
	}
	return nil
}
