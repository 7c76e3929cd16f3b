package entry

import "errors"

// ErrVersion: the record is of a version or a kind that this library does not
// know, so a newer one writes here. Whoever ignored it could publish outputs a
// second time: stop, and update this process.
var ErrVersion = errors.New("ledger record of an unknown version or kind: a newer sharetxn writes this ledger, update this process")

// ErrCorrupt: the record is not what any version of this library writes.
var ErrCorrupt = errors.New("ledger record is corrupt: something else writes this topic")

// ErrInvalid: a value that cannot be written; the text names the field.
var ErrInvalid = errors.New("ledger record cannot be written")
