// Package fault plans faults of the embedded broker: which request, or which
// transaction marker, meets with what. A plan is deterministic: it counts what
// matches, and draws only from its seed. It knows what fired and what did not.
package fault

import (
	"fmt"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// StageKey is TxnShareAcknowledge, whatever number the profile gives it.
const StageKey int16 = -1

// Fault is what happens to some requests of one API key.
type Fault struct {
	Name string // in reports; default: made of the rest
	Key  int16  // API key, or StageKey
	When
	Only   []Match // only requests that all of these match are counted
	Action Action  // the zero Action lets the request go on
	// Before is run when the request has arrived, Then when it was handled and is
	// not answered yet. They may stop nodes, this one too, and move leaders; the
	// request waits for them, and so does the cluster's Close, which they must not
	// call. Nil: nothing is run.
	Before, Then func()
}

func (f Fault) String() string {
	if f.Name != "" {
		return f.Name
	}
	key := "TxnShareAcknowledge"
	if f.Key != StageKey {
		key = kmsg.NameForKey(f.Key)
	}
	what := f.Action.String()
	if f.Before != nil || f.Then != nil {
		what = strings.TrimPrefix(what+" and run a function", "nothing and ")
	}
	return fmt.Sprintf("%s, %s: %s", key, f.When, what)
}

// Match tells whether a request counts. It is called from the connections'
// goroutines, one at a time for each plan, and must be quick.
type Match func(broker.Request) bool

// AtNode matches requests to one node.
func AtNode(node int32) Match { return func(r broker.Request) bool { return r.Node == node } }

// OfClient matches requests of clients with an id.
func OfClient(id string) Match { return func(r broker.Request) bool { return r.ClientID == id } }

// OfTransaction matches requests that name a transactional id.
func OfTransaction(id string) Match {
	return func(r broker.Request) bool {
		named, ok := transactionalID(r.Message())
		return ok && named == id
	}
}

// Request matches requests of one type that f is true of.
func Request[T kmsg.Request](f func(T) bool) Match {
	return func(r broker.Request) bool {
		m, ok := r.Message().(T)
		return ok && f(m)
	}
}

// Action is what becomes of a request.
type Action struct {
	name string
	make func(broker.Request) (broker.Action, error)
}

func (a Action) String() string {
	if a.make == nil {
		return "nothing"
	}
	return a.name
}

func action(name string, a broker.Action) Action {
	return Action{name, func(broker.Request) (broker.Action, error) { return a, nil }}
}

// LoseRequest cuts the connection; the request is not handled.
func LoseRequest() Action { return action("lose the request", broker.Action{LoseRequest: true}) }

// LoseAnswer handles the request and cuts the connection unanswered.
func LoseAnswer() Action { return action("lose the answer", broker.Action{LoseAnswer: true}) }

// Disconnect handles the request, answers, and cuts the connection: what was
// sent behind it is lost.
func Disconnect() Action { return action("cut the connection", broker.Action{Disconnect: true}) }

// DeliverTwice handles the request twice, one after the other, as when a client
// repeats it. The client gets the first answer.
func DeliverTwice() Action { return action("deliver twice", broker.Action{Twice: true}) }

// Delay handles the request only after d; what comes behind it on its connection
// waits too. A client that gives up earlier is not served.
func Delay(d time.Duration) Action {
	return action(fmt.Sprintf("delay by %v", d), broker.Action{Delay: d})
}

// LateAnswer handles the request and answers only d later; what comes behind it
// on its connection waits too.
func LateAnswer(d time.Duration) Action {
	return action(fmt.Sprintf("answer %v late", d), broker.Action{Late: d})
}

// TruncateAnswer handles the request and answers the first half, in a frame of
// that length.
func TruncateAnswer() Action { return action("truncate the answer", broker.Action{Truncate: true}) }

// Hold is Delay until the channel is closed.
func Hold(until <-chan struct{}) Action { return action("hold", broker.Action{Wait: until}) }

// Answer answers the code, see Respond, and does not handle the request. One
// whose answer has no place for a code goes on; the fault takes the next that it
// matches, and until then Planned.Err says why it has not fired.
func Answer(code int16) Action {
	return Action{fmt.Sprintf("answer code %d", code), func(r broker.Request) (broker.Action, error) {
		resp, err := respondTo(r, code)
		return broker.Action{Answer: resp}, err
	}}
}

// AnswerDone is Answer, but that the request is handled first.
func AnswerDone(code int16) Action {
	return Action{fmt.Sprintf("do it and answer code %d", code), func(r broker.Request) (broker.Action, error) {
		resp, err := respondTo(r, code)
		return broker.Action{Instead: resp}, err
	}}
}

func respondTo(r broker.Request, code int16) (kmsg.Response, error) {
	m := r.Message()
	if m == nil {
		return nil, fmt.Errorf("%w: the request cannot be decoded", ErrNoPlace)
	}
	return Respond(m, code)
}
