package conformance

import (
	"context"
	"fmt"
)

// Target is a cluster under test. Nodes are named by their broker ids.
type Target interface {
	Name() string // for people
	Seeds() []string
	Version() Version
	Embedded() bool
	Nodes() []int32
	// Kill ends a broker at once, as a crash does; Restart brings it back with
	// what it had on disk and waits until it serves.
	Kill(ctx context.Context, node int32) error
	Restart(ctx context.Context, node int32) error
	// Leaderless takes the leader of a partition away that has no other replica,
	// until back is called, which waits until it leads again.
	Leaderless(ctx context.Context, x *X, t Topic, partition int32) (back func())
}

// Version is that of the Kafka that runs, or that is imitated.
type Version struct{ Major, Minor, Patch int }

// ParseVersion reads "4.4.0".
func ParseVersion(s string) (v Version, err error) {
	if n, err := fmt.Sscanf(s, "%d.%d.%d", &v.Major, &v.Minor, &v.Patch); err != nil || n != 3 {
		return v, fmt.Errorf("version %q of Kafka: want MAJOR.MINOR.PATCH", s)
	}
	return v, nil
}

// Since tells whether it is at least that release.
func (v Version) Since(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}
