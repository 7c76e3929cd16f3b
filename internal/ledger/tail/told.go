package tail

import (
	"fmt"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
)

// told is what was said of trouble, so that what lasts is not said again and
// again.
type told struct {
	mu   sync.Mutex
	last error // nil since it works
	said map[string]time.Time
}

// sayAgain is after how long the same trouble is told again.
const sayAgain = time.Minute

// trouble warns of what is tried again by itself.
func (t *told) trouble(l *Ledger, err error) {
	t.mu.Lock()
	t.last = err
	now, text := time.Now(), err.Error()
	at, before := t.said[text]
	loud := !before || now.Sub(at) >= sayAgain
	if loud {
		if t.said == nil || len(t.said) > 100 {
			t.said = make(map[string]time.Time)
		}
		t.said[text] = now
	}
	t.mu.Unlock()
	if loud {
		l.co.Logger().Warn("sharetxn: the commit ledger is in trouble; it is tried again", "group", l.group, "topic", l.topic, "err", err)
	}
}

// works says that the last trouble is over.
func (t *told) works() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = nil
}

// why adds the last trouble to an error's text.
func (t *told) why() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		return ""
	}
	return fmt.Sprintf(" (%v)", t.last)
}

// tell gives an event to the user's hooks.
func (l *Ledger) tell(e sharetxn.LedgerEvent) {
	e.Group = l.group
	for _, h := range l.co.Hooks() {
		if h, ok := h.(sharetxn.HookLedger); ok {
			h.OnLedger(e)
		}
	}
}
