//go:build unix

package contender

import (
	"syscall"
	"time"
)

// processorTime is what this process has used, user and system.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // not measured
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
