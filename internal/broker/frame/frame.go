// Package frame reads and writes Kafka's frames and headers: pure over bytes
// and readers, no sockets, no state.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Max is the longest frame that is read: Kafka's socket.request.max.bytes.
const Max = 100 << 20

// ErrBad is wrapped by every error about a frame's form.
var ErrBad = errors.New("bad frame")

// Read reads one frame, length prefix included, into buf if it is large enough.
// Memory is taken as bytes arrive, not as the prefix claims.
func Read(r io.Reader, buf []byte) ([]byte, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(prefix[:])
	if n > Max {
		return nil, fmt.Errorf("%w: length %d", ErrBad, n)
	}
	buf = append(buf[:0], prefix[:]...)
	const step = 1 << 20
	for left := int(n); left > 0; {
		k := min(left, step)
		at := len(buf)
		if cap(buf)-at < k {
			buf = append(buf, make([]byte, k)...)
		} else {
			buf = buf[:at+k]
		}
		if _, err := io.ReadFull(r, buf[at:at+k]); err != nil {
			return nil, err
		}
		left -= k
	}
	return buf, nil
}

// Request is a client's frame with its header read.
type Request struct {
	Key, Version  int16
	CorrelationID int32
	ClientID      string
	Body          []byte // behind the header
	Raw           []byte // the whole frame
}

// Parse reads the header of a frame. The key may be one that kmsg does not
// know; the header is then taken for a flexible one, as all new APIs have.
func Parse(raw []byte) (Request, error) {
	if len(raw) < 12 {
		return Request{}, fmt.Errorf("%w: %d bytes are no request", ErrBad, len(raw))
	}
	r := kbin.Reader{Src: raw[4:]}
	q := Request{Raw: raw, Key: r.Int16(), Version: r.Int16(), CorrelationID: r.Int32()}
	if id := r.NullableString(); id != nil {
		q.ClientID = *id
	}
	if flexible(q.Key, q.Version) {
		kmsg.SkipTags(&r)
	}
	if !r.Ok() {
		return Request{}, fmt.Errorf("%w: header cut short", ErrBad)
	}
	q.Body = r.Src
	return q, nil
}

func flexible(key, version int16) bool {
	r := kmsg.RequestForKey(key)
	if r == nil {
		return true
	}
	r.SetVersion(version)
	return r.IsFlexible()
}

// Message decodes the body. Staging is decoded in the given profile's form
// where its key is the profile's.
func (q Request) Message(staging wire.Profile) (kmsg.Request, error) {
	var m kmsg.Request
	if staging != wire.None && q.Key == staging.Key() {
		m = &wire.Request{Profile: staging}
	} else {
		m = kmsg.RequestForKey(q.Key)
	}
	if m == nil {
		return nil, fmt.Errorf("%w: unknown key %d", ErrBad, q.Key)
	}
	if q.Version < 0 || q.Version > m.MaxVersion() {
		return nil, fmt.Errorf("%w: key %d has no version %d", ErrBad, q.Key, q.Version)
	}
	m.SetVersion(q.Version)
	if err := m.ReadFrom(q.Body); err != nil {
		return nil, fmt.Errorf("%w: key %d version %d: %w", ErrBad, q.Key, q.Version, err)
	}
	return m, nil
}

const apiVersionsKey = 18

// AppendResponse makes the frame that answers a request.
func AppendResponse(buf []byte, correlationID int32, resp kmsg.Response) []byte {
	buf = append(buf[:0], 0, 0, 0, 0)
	buf = binary.BigEndian.AppendUint32(buf, uint32(correlationID))
	if resp.IsFlexible() && resp.Key() != apiVersionsKey { // KIP-511: its header never is
		buf = append(buf, 0)
	}
	return finish(resp.AppendTo(buf))
}

// AppendAnswer makes such a frame of its parts: the header's tagged fields, with
// their count, and the body.
func AppendAnswer(buf []byte, correlationID int32, tags, body []byte) []byte {
	buf = append(buf[:0], 0, 0, 0, 0)
	buf = binary.BigEndian.AppendUint32(buf, uint32(correlationID))
	return finish(append(append(buf, tags...), body...))
}

// finish writes the length of a frame into its first bytes.
func finish(buf []byte) []byte {
	binary.BigEndian.PutUint32(buf, uint32(len(buf)-4))
	return buf
}

// Halve gives the first half of an answer, in a frame that says so: what a
// decoder finds is cut short, and the connection goes on.
func Halve(answer []byte) []byte {
	const header = 8 // length and correlation id
	half := append([]byte(nil), answer[:header+(len(answer)-header)/2]...)
	return finish(half)
}

// AppendRequest makes the frame of a request.
func AppendRequest(buf []byte, correlationID int32, clientID string, req kmsg.Request) []byte {
	buf = append(buf[:0], 0, 0, 0, 0)
	buf = binary.BigEndian.AppendUint16(buf, uint16(req.Key()))
	buf = binary.BigEndian.AppendUint16(buf, uint16(req.GetVersion()))
	buf = binary.BigEndian.AppendUint32(buf, uint32(correlationID))
	buf = kbin.AppendString(buf, clientID)
	if req.IsFlexible() {
		buf = append(buf, 0)
	}
	return finish(req.AppendTo(buf))
}

// ReadResponse decodes the frame that answers req.
func ReadResponse(raw []byte, req kmsg.Request) (kmsg.Response, error) {
	if len(raw) < 8 {
		return nil, fmt.Errorf("%w: %d bytes are no response", ErrBad, len(raw))
	}
	resp := req.ResponseKind()
	r := kbin.Reader{Src: raw[8:]}
	if resp.IsFlexible() && resp.Key() != apiVersionsKey {
		kmsg.SkipTags(&r)
	}
	if err := resp.ReadFrom(r.Src); err != nil {
		return nil, fmt.Errorf("%w: answer of key %d: %w", ErrBad, req.Key(), err)
	}
	return resp, nil
}

// ErrorCode is the code an ApiVersions answer begins with.
func ErrorCode(raw []byte) int16 {
	if len(raw) < 10 {
		return 0
	}
	return int16(binary.BigEndian.Uint16(raw[8:]))
}
