// Package groupmeta holds ShareGroupMetadata (KIP-1289). Pure: no I/O, no clock.
package groupmeta

// ShareGroupMetadata is who acknowledges: an immutable snapshot of one share
// group member. Comparable with ==; safe for concurrent use.
type ShareGroupMetadata struct {
	groupID     string
	memberID    string
	memberEpoch int32
}

// GroupID is the share group.
func (m ShareGroupMetadata) GroupID() string { return m.groupID }

// MemberID is the member's id, at most 36 characters.
func (m ShareGroupMetadata) MemberID() string { return m.memberID }

// MemberEpoch is the epoch of the member when the snapshot was taken.
func (m ShareGroupMetadata) MemberEpoch() int32 { return m.memberEpoch }

// IsZero reports whether m is the zero value: no member yet.
func (m ShareGroupMetadata) IsZero() bool { return m == ShareGroupMetadata{} }
