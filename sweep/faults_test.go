package sweep

import (
	"fmt"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
)

// kind is one thing that can happen to a request.
type kind struct {
	name   string
	action func() sharetxntest.Action
}

// late is beyond every timer of a client: that of a request, of a transaction
// and of a lock.
const late = 45 * time.Second

var anywhere = []kind{
	{"request lost", sharetxntest.LoseRequest},
	{"answer lost", sharetxntest.LoseAnswer},
	{"connection cut behind the answer", sharetxntest.Disconnect},
	{"delivered twice", sharetxntest.DeliverTwice},
	{"answer truncated", sharetxntest.TruncateAnswer},
	{"answer late", func() sharetxntest.Action { return sharetxntest.LateAnswer(late) }},
}

func refused(code int16) kind {
	return kind{fmt.Sprintf("code %d", code), func() sharetxntest.Action { return sharetxntest.Answer(code) }}
}

func belied(code int16) kind {
	return kind{fmt.Sprintf("done, and code %d", code), func() sharetxntest.Action { return sharetxntest.AnswerDone(code) }}
}

// api is a request of the service's life, and what brokers may answer to it.
type api struct {
	key sharetxntest.Key
	// codes are answered in place of the work: those of the project's reference on
	// errors, and one that nobody knows.
	codes []int16
	// belied are answered though the work is done: those that may follow it.
	belied []int16
	// only is in which settings it is sent; nil: in all.
	only func(setting) bool
}

const nobodyKnows = 999

// keys that the kit has no name for
const (
	fetch                sharetxntest.Key = 1
	listOffsets          sharetxntest.Key = 2
	apiVersions          sharetxntest.Key = 18
	describeConfigs      sharetxntest.Key = 32
	describeProducers    sharetxntest.Key = 61
	describeTransactions sharetxntest.Key = 65
	describeShareOffsets sharetxntest.Key = 90
)

func staged(s setting) bool    { return s.guarantee == processor.Staged }
func ledgered(s setting) bool  { return s.guarantee == processor.Ledger }
func processed(s setting) bool { return !s.byHand }

var apis = []api{
	{key: apiVersions}, // ApiVersions: an answer with a code means another version
	{key: sharetxntest.MetadataKey, codes: []int16{3, 5, 29, -1, nobodyKnows}},
	{key: sharetxntest.FindCoordinatorKey, codes: []int16{14, 15, 16, 30, 31, 42, 53, 120, -1, nobodyKnows}},
	{key: sharetxntest.InitProducerIDKey, codes: []int16{14, 15, 16, 31, 35, 42, 47, 49, 50, 51, 53, 90, 120, -1, nobodyKnows}, belied: []int16{15, 16, 51}},
	{
		key:    sharetxntest.ProduceKey,
		codes:  []int16{3, 5, 6, 7, 10, 13, 18, 19, 20, 29, 32, 43, 45, 47, 48, 49, 51, 53, 56, 59, 87, 90, 100, 120, -1, nobodyKnows},
		belied: []int16{7, 20, 46, 56, -1},
	},
	{key: sharetxntest.ProofKey, codes: []int16{14, 15, 16, 30, 35, 53, -1, nobodyKnows}, only: staged},
	{
		key:    sharetxntest.StageKey,
		codes:  []int16{3, 6, 7, 13, 14, 15, 16, 19, 25, 29, 30, 31, 35, 42, 47, 48, 49, 51, 53, 56, 69, 90, 100, 105, 110, 113, 120, 121, -1, nobodyKnows},
		belied: []int16{7, 13, 15, 16, 56, -1},
		only:   staged,
	},
	// Not 48 where it was done: that is no answer to what was committed.
	{key: sharetxntest.EndTxnKey, codes: []int16{14, 15, 16, 47, 48, 49, 51, 53, 59, 90, 105, 120, -1, nobodyKnows}, belied: []int16{7, 14, 15, 16, 51, -1}},
	{key: sharetxntest.HeartbeatKey, codes: []int16{14, 15, 16, 25, 29, 30, 35, 42, 69, 81, 110, -1, nobodyKnows}, belied: []int16{14, 15, 16, -1}},
	{key: sharetxntest.ShareFetchKey, codes: []int16{2, 3, 6, 7, 14, 15, 29, 30, 42, 56, 74, 100, 122, 123, 124, 133, -1, nobodyKnows}, belied: []int16{6, 7, 122, -1}},
	{key: sharetxntest.ShareAcknowledgeKey, codes: []int16{2, 3, 6, 7, 13, 15, 29, 30, 42, 56, 74, 100, 121, 122, 123, 124, -1, nobodyKnows}, belied: []int16{6, 7, 56, 121, -1}},
	{key: describeProducers, codes: []int16{3, 5, 6, 7, 29, 56, 74, 75, 100, -1, nobodyKnows}},
	{key: describeTransactions, codes: []int16{14, 15, 16, 53, 105, -1, nobodyKnows}},
	{key: describeConfigs, codes: []int16{29, 30, 31, 42, -1, nobodyKnows}, only: processed},
	{key: fetch, codes: []int16{1, 3, 6, 29, 56, 74, 75, 78, 100, -1, nobodyKnows}, only: ledgered},
	{key: listOffsets, codes: []int16{3, 6, 29, 74, 78, -1, nobodyKnows}, only: ledgered},
	{key: describeShareOffsets, codes: []int16{14, 15, 16, 30, 69, -1, nobodyKnows}, only: ledgered},
}

// kinds are all that can happen to requests of an API.
func (a api) kinds() []kind {
	out := slices.Clone(anywhere)
	for _, c := range a.codes {
		out = append(out, refused(c))
	}
	for _, c := range a.belied {
		out = append(out, belied(c))
	}
	return out
}

func apisOf(s setting) (out []api) {
	for _, a := range apis {
		if a.only == nil || a.only(s) {
			out = append(out, a)
		}
	}
	return out
}
