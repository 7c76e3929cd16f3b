//go:build !unix

package contender

import "time"

// processorTime is not measured here.
func processorTime() time.Duration { return 0 }
