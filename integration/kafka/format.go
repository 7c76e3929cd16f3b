package kafka

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// copyFormat makes of a formatted folder the one of another node: its own id,
// and its own name for the folder, which Kafka wants to be unique.
func copyFormat(to, from string, id int) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	meta := filepath.Join(to, "meta.properties")
	text, err := os.ReadFile(meta)
	if err != nil {
		return err
	}
	var name [16]byte
	_, _ = rand.Read(name[:]) // never fails
	lines := strings.Split(string(text), "\n")
	seen := 0
	for i, line := range lines {
		switch key, _, _ := strings.Cut(line, "="); key {
		case "node.id":
			lines[i] = fmt.Sprint("node.id=", id)
			seen++
		case "directory.id":
			lines[i] = "directory.id=" + base64.RawURLEncoding.EncodeToString(name[:])
			seen++
		}
	}
	if seen != 2 {
		return fmt.Errorf("meta.properties has not the form we know:\n%s", text)
	}
	return os.WriteFile(meta, []byte(strings.Join(lines, "\n")), 0o644)
}
