// Package topic is the ledger topic of a group as brokers keep it: its name, how it
// is made and widened, and the generation record in each of its partitions. What
// configs it must have is package rules', what its entries mean package index's.
package topic

import (
	"fmt"
	"strings"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
)

// prefix begins the name of every ledger topic.
const prefix = entry.TopicPrefix

// maxName is the longest name that Kafka allows for a topic, in bytes.
const maxName = 249

// Name is the ledger topic of a group.
func Name(group string) string { return prefix + group }

// Reserved tells whether a topic's name is that of some group's ledger, into which
// nothing but entries and generations may be written.
func Reserved(name string) bool { return strings.HasPrefix(name, prefix) }

// CheckGroup says whether the group's name can be part of a topic's: letters,
// digits, ".", "_" and "-" only, and 231 of them at the most. A group may have
// any name in Kafka; nothing is replaced in it, since two groups could then share
// a ledger. Errors are of class usage.
func CheckGroup(op, group string) error {
	bad := func(format string, args ...any) error {
		return &sharetxn.Error{Op: op, Class: sharetxn.ClassUsage, Group: group, Err: fmt.Errorf("%w: group: "+format, append([]any{sharetxn.ErrUsage}, args...)...)}
	}
	at := strings.IndexFunc(group, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune("._-", r)
	})
	switch {
	case group == "":
		return bad("empty")
	case at >= 0:
		return bad("%q cannot be in a topic's name, and a group's ledger is topic %s<group>: only letters, digits, \".\", \"_\" and \"-\" can; use another group", []rune(group[at:])[0], prefix)
	case len(group) > maxName-len(prefix):
		return bad("%d characters are too many for the ledger topic's name, %s<group>: use at most %d", len(group), prefix, maxName-len(prefix))
	}
	return nil
}
