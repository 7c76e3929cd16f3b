package kafka

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Java can keep what it has made of its classes, which halves the time a broker
// takes to start. The first cluster of a machine writes that archive when it is
// stopped; later ones read it. Java checks it against its own version and the
// jars, and does without one that does not fit, so nothing depends on it. Brokers
// with Java options of their own are measured, and have none.

// archiveOf names the archive of a Java and a folder of jars; it lies among
// them, so that it goes when they go. It is empty where none can be kept.
func archiveOf(run Runtime) string {
	java, err := filepath.EvalSymlinks(run.Java)
	if err != nil {
		return ""
	}
	info, err := os.Stat(java)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", java, info.Size(), info.ModTime().UnixNano()))
	return filepath.Join(run.Jars, fmt.Sprintf("classes-%x.jsa", sum[:6]))
}

// prepareArchive lets the first broker write the archive where there is none.
func (ps *processes) prepareArchive() {
	if ps.archive == "" {
		return
	}
	if _, err := os.Stat(ps.archive); err == nil {
		return
	}
	first := ps.nodes[0]
	first.flags = []string{"-XX:ArchiveClassesAtExit=" + filepath.Join(first.dir, "classes.jsa")}
	ps.archive = "" // of which a broker that writes one must not know
}

// keepArchive takes what prepareArchive ordered to its place, whole or not at
// all. A broker that was killed has written none.
func (ps *processes) keepArchive() error {
	first := ps.nodes[0]
	first.mu.Lock()
	whole := first.clean && len(first.flags) > 0
	first.mu.Unlock()
	if !whole {
		return nil
	}
	written, err := os.ReadFile(filepath.Join(first.dir, "classes.jsa"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a Java that keeps none
	}
	if err == nil {
		err = writeWhole(archiveOf(ps.runtime), written)
	}
	if err != nil {
		return fmt.Errorf("keep the class archive: %w", err)
	}
	return nil
}

// writeWhole writes a file beside its place and moves it there.
func writeWhole(name string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), "writing-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // there only if it was not moved
	_, err = tmp.Write(text)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
}
