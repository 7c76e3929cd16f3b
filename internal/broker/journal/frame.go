package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
)

// A file is magic and then changes, one after the other:
//
//	length of what follows the two sums, 4 bytes, little endian as all numbers
//	sum of the length, 4 bytes: a length that is wrong must not look like a file cut short
//	sum of what follows, 4 bytes
//	kind, 1 byte; length of the key, 4 bytes; key; value
const magic = "sharetxn journal 1\n"

const (
	headSize = 12
	keyAt    = 5 // in what follows the head

	kindPut    = 1
	kindDelete = 2
)

var sums = crc32.MakeTable(crc32.Castagnoli)

// change is one entry of the file.
type change struct {
	key   string
	value []byte
	gone  bool
}

func frameSize(key string, value []byte) int64 {
	return int64(headSize + keyAt + len(key) + len(value))
}

func appendChange(dst []byte, c change) []byte {
	kind := byte(kindPut)
	if c.gone {
		kind = kindDelete
	}
	at := len(dst)
	dst = append(dst, make([]byte, headSize)...)
	dst = append(dst, kind)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(c.key)))
	dst = append(dst, c.key...)
	dst = append(dst, c.value...)
	head, body := dst[at:at+headSize], dst[at+headSize:]
	binary.LittleEndian.PutUint32(head, uint32(len(body)))
	binary.LittleEndian.PutUint32(head[4:], crc32.Checksum(head[:4], sums))
	binary.LittleEndian.PutUint32(head[8:], crc32.Checksum(body, sums))
	return dst
}

// read tells see of each change and gives how many bytes are whole. What a write
// that was cut short leaves is a beginning of what was to be written, so a frame
// that is all there and wrong was changed later, and is an error.
func read(raw []byte, see func(change)) (whole int, err error) {
	if len(raw) < len(magic) && strings.HasPrefix(magic, string(raw)) {
		return 0, nil
	}
	if !strings.HasPrefix(string(raw[:min(len(raw), len(magic))]), magic) {
		return 0, fmt.Errorf("%w: it does not begin as a journal does", ErrCorrupt)
	}
	for at := len(magic); ; {
		rest := raw[at:]
		if len(rest) < headSize {
			return at, nil
		}
		size := binary.LittleEndian.Uint32(rest)
		if crc32.Checksum(rest[:4], sums) != binary.LittleEndian.Uint32(rest[4:]) {
			return at, fmt.Errorf("%w: the length at byte %d is not what was written", ErrCorrupt, at)
		}
		if uint64(len(rest)) < headSize+uint64(size) {
			return at, nil
		}
		body := rest[headSize : headSize+int(size)]
		if crc32.Checksum(body, sums) != binary.LittleEndian.Uint32(rest[8:]) {
			return at, fmt.Errorf("%w: the entry at byte %d is not what was written", ErrCorrupt, at)
		}
		c, ok := parse(body)
		if !ok {
			return at, fmt.Errorf("%w: the entry at byte %d says nothing that is known", ErrCorrupt, at)
		}
		see(c)
		at += headSize + int(size)
	}
}

func parse(body []byte) (change, bool) {
	if len(body) < keyAt {
		return change{}, false
	}
	length := binary.LittleEndian.Uint32(body[1:])
	if uint64(length) > uint64(len(body)-keyAt) {
		return change{}, false
	}
	n := keyAt + int(length)
	c := change{key: string(body[keyAt:n])}
	switch body[0] {
	case kindPut:
		c.value = append([]byte{}, body[n:]...)
		return c, true
	case kindDelete:
		c.gone = true
		return c, len(body) == n
	}
	return change{}, false
}
