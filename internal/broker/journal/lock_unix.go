//go:build unix

package journal

import (
	"errors"
	"os"
	"syscall"
)

// take locks the file; the system ends the lock with the process.
func take(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}
