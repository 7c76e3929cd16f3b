package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/lapse"
)

// InputIsolation says what a Processor does about a group that reads uncommitted:
// it is handed records of transactions that aborted, or may yet abort, as if they
// were there. The level is the group's config (share.isolation.level, KIP-932),
// not a client's, and Kafka's default is read_uncommitted.
type InputIsolation uint8

const (
	// WarnReadUncommitted logs a warning that says how to mend it. It is the
	// default.
	WarnReadUncommitted InputIsolation = iota
	// RequireReadCommitted makes Run end with ErrReadUncommitted before it joins
	// the group. It is looked at when Run begins; a change after that is warned of.
	RequireReadCommitted
	// AllowReadUncommitted says nothing: the inputs are never transactional, or
	// are wanted whatever became of their transactions.
	AllowReadUncommitted
)

func (i InputIsolation) check() error {
	if i > AllowReadUncommitted {
		return usage("New", "InputIsolation: %d is unknown", uint8(i))
	}
	return nil
}

// ErrReadUncommitted: the group delivers what was not committed, and the
// Processor was told to require that it does not. Set the group's isolation with
// groupconfig.Set.
var ErrReadUncommitted = errors.New("processor: the share group reads uncommitted: it would be handed records of aborted transactions")

// isolation watches the group's level; one goroutine at a time uses it.
type isolation struct {
	group  string
	policy InputIsolation
	log    *slog.Logger
	warned bool
}

func mend(group string) string {
	return fmt.Sprintf("groupconfig.Set(ctx, cluster, %q, groupconfig.IsolationLevel(groupconfig.ReadCommitted)), or kafka-configs.sh --alter --entity-type groups --entity-name %s --add-config share.isolation.level=read_committed", group, group)
}

// see warns, once, when the level begins to be another than read_committed.
func (i *isolation) see(c groupconfig.Configs) {
	open := c.IsolationLevel != groupconfig.ReadCommitted
	if open && !i.warned && i.policy != AllowReadUncommitted {
		i.log.Warn("sharetxn: the group reads uncommitted, so records of aborted transactions are handled too; set its isolation level, or say that it is meant with Config.InputIsolation: AllowReadUncommitted",
			"group", i.group, "mend", mend(i.group))
	}
	i.warned = open
}

// require is the answer of RequireReadCommitted: nil if the group reads
// committed, or if start ended first.
func (i *isolation) require(start context.Context, cl *sharetxn.Cluster) error {
	if i.policy != RequireReadCommitted {
		return nil
	}
	began := time.Now()
	for attempt := 1; start.Err() == nil; attempt++ {
		c, err := groupconfig.Describe(start, cl, i.group)
		switch {
		case start.Err() != nil: // stopped: Run ends without an error
		case err == nil && c.IsolationLevel == groupconfig.ReadCommitted:
			return nil
		case err == nil:
			return &sharetxn.Error{Op: "Run", Class: sharetxn.ClassFatal, Group: i.group, Err: fmt.Errorf("%w; %s", ErrReadUncommitted, mend(i.group))}
		case sharetxn.IsFatal(err), time.Since(began) > startFor:
			return &sharetxn.Error{Op: "Run", Class: sharetxn.ClassFatal, Group: i.group, Err: fmt.Errorf("the group's isolation level, which must be read_committed, cannot be read: %w", err)}
		}
		if lapse.For(start, backoff(attempt)) {
			i.log.Warn("sharetxn: the group's isolation level is not read yet, again", "group", i.group, "err", err)
		}
	}
	return nil
}
