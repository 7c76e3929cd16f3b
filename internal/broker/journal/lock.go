package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrLocked is of a folder that another process, or cluster, has.
var ErrLocked = errors.New("in use by another broker")

// Lock makes the folder where it is missing and takes it for this process; it
// ends with the file that it gives, or with the process, however that ends.
func Lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if err := take(f); err != nil {
		return nil, errors.Join(fmt.Errorf("journal: folder %s: %w", dir, err), f.Close())
	}
	return f, nil
}
