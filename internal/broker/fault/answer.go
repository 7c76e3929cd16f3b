package fault

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrNoPlace is wrapped where no answer to a request can carry a code: its
// version has none, it asks for nothing that could have one, or it wants no
// answer.
var ErrNoPlace = errors.New("no place for a code in the answer")

// Respond makes an answer to req, in its version, that carries the code where
// Kafka would: errors of a topic or partition with each partition that was asked
// for, all others as far out as the API has a place for one. What was asked for
// is named in the answer as in the request; all else has the defaults.
func Respond(req kmsg.Request, code int16) (kmsg.Response, error) {
	if code == 0 {
		return nil, fmt.Errorf("%w: 0 is no error", ErrNoPlace)
	}
	if p, ok := req.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
		return nil, fmt.Errorf("%w: a produce without acks", ErrNoPlace)
	}
	var found kmsg.Response
	for depth := range deepest + 1 {
		resp := at(req, depth, code)
		if resp == nil {
			continue
		}
		found = resp
		if !ofPartition[code] {
			break
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: %s version %d", ErrNoPlace, kmsg.NameForKey(req.Key()), req.GetVersion())
	}
	return found, nil
}

// deepest is how many arrays lie around the innermost code that an API has:
// groups, topics, partitions.
const deepest = 3

// ofPartition are the codes that tell of a topic or a partition, not of the
// request, the group or the transaction.
var ofPartition = func() map[int16]bool {
	out := make(map[int16]bool)
	for _, e := range []*kerr.Error{
		kerr.OffsetOutOfRange, kerr.CorruptMessage, kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable, kerr.NotLeaderForPartition,
		kerr.ReplicaNotAvailable, kerr.MessageTooLarge, kerr.InvalidTopicException, kerr.RecordListTooLarge, kerr.NotEnoughReplicas,
		kerr.NotEnoughReplicasAfterAppend, kerr.TopicAuthorizationFailed, kerr.InvalidTimestamp, kerr.OutOfOrderSequenceNumber,
		kerr.DuplicateSequenceNumber, kerr.KafkaStorageError, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.OffsetNotAvailable,
		kerr.InvalidRecord, kerr.UnknownTopicID, kerr.InconsistentTopicID, kerr.InvalidRecordState,
	} {
		out[e.Code] = true
	}
	return out
}()

// asked names, by API key, the request's field that the answer's outermost array
// answers, where the two are not called the same. The first that is not empty
// counts; a dot goes into the elements.
var asked = map[int16][]string{
	10: {"CoordinatorKeys"},
	20: {"TopicNames", "Topics"},
	30: {"Creations"},
	31: {"Filters"},
	34: {"Dirs.Topics"},
	51: {"Upsertions", "Deletions"},
	65: {"TransactionalIDs"},
	77: {"GroupIDs"},
}

// identity are the fields by which an answer says what it is about, in the
// order in which a bare string or number finds its place.
var identity = []string{
	"Topic", "TopicID", "Partition", "Group", "GroupID", "Key", "TransactionalID", "ProducerID",
	"ResourceType", "ResourceName", "MemberID", "InstanceID", "Feature", "User", "Entity",
}

const codeField = "ErrorCode"

// at makes the answer with the code inside of depth arrays; nil if the version
// has no code there, or nothing was asked for that far in. Which fields a
// version has is seen by what arrives.
func at(req kmsg.Request, depth int, code int16) kmsg.Response {
	resp, read := req.ResponseKind(), req.ResponseKind()
	fill(reflect.ValueOf(resp).Elem(), reflect.ValueOf(req).Elem(), asked[req.Key()], depth, code)
	if err := read.ReadFrom(resp.AppendTo(nil)); err != nil || !carries(reflect.ValueOf(read).Elem(), code) {
		return nil
	}
	return resp
}

// fill writes the code into resp, or into the elements of its arrays that answer
// what req asks for: in the fields named, or in those of the same name.
func fill(resp, req reflect.Value, names []string, depth int, code int16) {
	if depth == 0 {
		if f := resp.FieldByName(codeField); f.IsValid() {
			f.SetInt(int64(code))
		}
		return
	}
	for i := range resp.NumField() {
		f := resp.Field(i)
		if !structs(f.Type()) || !mayCarry(f.Type().Elem()) {
			continue
		}
		from := names
		if from == nil {
			from = []string{resp.Type().Field(i).Name}
		}
		for _, e := range elements(req, from) {
			out := reflect.New(f.Type().Elem())
			if d, ok := out.Interface().(interface{ Default() }); ok {
				d.Default()
			}
			identify(out.Elem(), e)
			if depth == 1 || e.Kind() == reflect.Struct {
				fill(out.Elem(), e, nil, depth-1, code)
			}
			f.Set(reflect.Append(f, out.Elem()))
		}
	}
}

// elements gives what the request asks for in the first of the fields that is
// there and not empty.
func elements(req reflect.Value, names []string) (out []reflect.Value) {
	for _, path := range names {
		name, inner, nested := strings.Cut(path, ".")
		f := req.FieldByName(name)
		if !f.IsValid() || f.Kind() != reflect.Slice {
			continue
		}
		for i := range f.Len() {
			if nested {
				out = append(out, elements(f.Index(i), []string{inner})...)
			} else {
				out = append(out, f.Index(i))
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// identify names in the answer's element what the request's element names.
func identify(out, asked reflect.Value) {
	for _, name := range identity {
		to := out.FieldByName(name)
		if !to.IsValid() {
			continue
		}
		if asked.Kind() != reflect.Struct {
			if put(to, asked) {
				return
			}
			continue
		}
		from := asked.FieldByName(name)
		if !from.IsValid() && name == "User" {
			from = asked.FieldByName("Name")
		}
		if from.IsValid() {
			put(to, from)
		}
	}
}

// put copies a value into a field of the same type, a pointer to it, or an array
// of elements with fields of the same names.
func put(to, from reflect.Value) bool {
	switch {
	case from.Type() == to.Type():
		to.Set(from)
	case to.Kind() == reflect.Pointer && to.Type().Elem() == from.Type():
		to.Set(reflect.New(from.Type()))
		to.Elem().Set(from)
	case structs(to.Type()) && structs(from.Type()):
		for i := range from.Len() {
			e := reflect.New(to.Type().Elem()).Elem()
			for j := range e.NumField() {
				if f := from.Index(i).FieldByName(e.Type().Field(j).Name); f.IsValid() && f.Type() == e.Field(j).Type() {
					e.Field(j).Set(f)
				}
			}
			to.Set(reflect.Append(to, e))
		}
	default:
		return false
	}
	return true
}

func structs(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// mayCarry tells whether an element has a code, or holds arrays of such.
func mayCarry(t reflect.Type) bool {
	if _, ok := t.FieldByName(codeField); ok {
		return true
	}
	for i := range t.NumField() {
		if f := t.Field(i).Type; structs(f) && mayCarry(f.Elem()) {
			return true
		}
	}
	return false
}

// carries tells whether the code stands anywhere in a decoded answer.
func carries(v reflect.Value, code int16) bool {
	if f := v.FieldByName(codeField); f.IsValid() && f.Int() == int64(code) {
		return true
	}
	for i := range v.NumField() {
		if f := v.Field(i); structs(f.Type()) {
			for j := range f.Len() {
				if carries(f.Index(j), code) {
					return true
				}
			}
		}
	}
	return false
}
