// Package wire is TxnShareAcknowledge v0 (KIP-1289) as kmsg requests, in the
// two profiles that exist of it. It has no state and does no I/O.
package wire

// Profile is one way to speak TxnShareAcknowledge (design 4.5).
type Profile uint8

const (
	None    Profile = iota // no staging
	Draft95                // the current draft: key 95, share.version 3, types as a list
	KIP93                  // the KIP's text: key 93, share.version 2, one type a batch; only ever by name
)

// Key is the profile's API key; -1 for None.
func (p Profile) Key() int16 {
	switch p {
	case Draft95:
		return 95
	case KIP93:
		return 93
	}
	return -1
}

// ShareVersion is the finalized share.version the profile needs.
func (p Profile) ShareVersion() int16 {
	switch p {
	case Draft95:
		return 3
	case KIP93:
		return 2
	}
	return -1
}

// AbortFrees tells what an abort does with staged records: true makes them
// available to any member, false gives them back to the one that acquired them,
// whose lock has run on (design 5).
func (p Profile) AbortFrees() bool { return p != KIP93 }

// AllOrNothing tells whether the partitions of one call are staged together or
// not at all; otherwise each is by itself (design 5).
func (p Profile) AllOrNothing() bool { return p == KIP93 }

func (p Profile) String() string {
	switch p {
	case Draft95:
		return "draft95"
	case KIP93:
		return "kip93"
	}
	return "none"
}
