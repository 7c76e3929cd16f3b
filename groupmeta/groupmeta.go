// Package groupmeta holds ShareGroupMetadata, the identity under which
// acknowledgements are staged (KIP-1289). Pure: no I/O, no clock.
package groupmeta

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxMemberID is the longest member id a broker takes, in UTF-16 code units:
// what Java counts as characters (KIP-932).
const MaxMemberID = 36

// maxGroupID is what Kafka's strings hold, in bytes.
const maxGroupID = math.MaxInt16

// ShareGroupMetadata is who acknowledges: an immutable snapshot of one share
// group member. Comparable with ==; safe for concurrent use.
type ShareGroupMetadata struct {
	groupID     string
	memberID    string
	memberEpoch int32
}

// Error says which field is wrong. It is a mistake of the calling code.
type Error struct{ Field, Reason string }

func (e *Error) Error() string { return "groupmeta: " + e.Field + ": " + e.Reason }

// Usage marks the class of the error for sharetxn.ClassOf.
func (*Error) Usage() bool { return true }

// New is for frameworks that carry the identity over a wire. Services take it
// from shareconsumer.Consumer.ShareGroupMetadata. Errors are *Error.
func New(groupID, memberID string, memberEpoch int32) (ShareGroupMetadata, error) {
	switch {
	case strings.TrimSpace(groupID) == "": // as a broker judges it
		return ShareGroupMetadata{}, &Error{"GroupID", "blank"}
	case len(groupID) > maxGroupID:
		return ShareGroupMetadata{}, &Error{"GroupID", fmt.Sprintf("longer than %d bytes", maxGroupID)}
	case !utf8.ValidString(groupID):
		return ShareGroupMetadata{}, &Error{"GroupID", "not UTF-8"}
	case memberID == "":
		return ShareGroupMetadata{}, &Error{"MemberID", "empty"}
	case !utf8.ValidString(memberID):
		return ShareGroupMetadata{}, &Error{"MemberID", "not UTF-8"}
	case javaLength(memberID) > MaxMemberID:
		return ShareGroupMetadata{}, &Error{"MemberID", fmt.Sprintf("longer than %d characters", MaxMemberID)}
	case memberEpoch < 0:
		return ShareGroupMetadata{}, &Error{"MemberEpoch", "negative: the member has left or was fenced"}
	}
	return ShareGroupMetadata{groupID, memberID, memberEpoch}, nil
}

func javaLength(s string) (n int) {
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

// GroupID is the share group.
func (m ShareGroupMetadata) GroupID() string { return m.groupID }

// MemberID is the member's id, at most 36 characters.
func (m ShareGroupMetadata) MemberID() string { return m.memberID }

// MemberEpoch is the epoch of the member when the snapshot was taken.
func (m ShareGroupMetadata) MemberEpoch() int32 { return m.memberEpoch }

// IsZero reports whether m is the zero value: no member yet.
func (m ShareGroupMetadata) IsZero() bool { return m == ShareGroupMetadata{} }

// String is for people; the text form for machines is MarshalText.
func (m ShareGroupMetadata) String() string {
	if m.IsZero() {
		return "no member"
	}
	return fmt.Sprintf("%s/%s@%d", m.groupID, m.memberID, m.memberEpoch)
}

// version starts the text form; the ids behind it are quoted, so that any id
// comes back as it was.
const version = "v1"

// MarshalText gives a versioned line of ASCII that UnmarshalText reads: v1, the
// member epoch, the quoted group id, the quoted member id. The zero value gives
// empty text. The error is always nil.
func (m ShareGroupMetadata) MarshalText() ([]byte, error) {
	if m.IsZero() {
		return nil, nil
	}
	return fmt.Appendf(nil, "%s %d %+q %+q", version, m.memberEpoch, m.groupID, m.memberID), nil
}

// UnmarshalText reads what MarshalText wrote, and nothing else. Errors are
// *Error; m is then unchanged.
func (m *ShareGroupMetadata) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*m = ShareGroupMetadata{}
		return nil
	}
	v, rest, _ := strings.Cut(string(text), " ")
	if v != version {
		return &Error{"text", "unknown version; this library reads " + version}
	}
	number, rest, _ := strings.Cut(rest, " ")
	epoch, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return &Error{"MemberEpoch", "not a 32-bit number"}
	}
	group, rest, err := unquotePrefix(rest)
	if err != nil {
		return &Error{"GroupID", "not a quoted text"}
	}
	member, _, err := unquotePrefix(strings.TrimPrefix(rest, " "))
	if err != nil {
		return &Error{"MemberID", "not a quoted text"}
	}
	read, err := New(group, member, int32(epoch))
	if err != nil {
		return err
	}
	// One identity has one text: what was read another way was not written by us.
	if again, _ := read.MarshalText(); !bytes.Equal(again, text) {
		return &Error{"text", "not as MarshalText writes it"}
	}
	*m = read
	return nil
}

func unquotePrefix(s string) (value, rest string, err error) {
	q, err := strconv.QuotedPrefix(s)
	if err != nil {
		return "", "", err
	}
	value, err = strconv.Unquote(q)
	return value, s[len(q):], err
}
