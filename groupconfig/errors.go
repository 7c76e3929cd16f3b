package groupconfig

import (
	"errors"
	"fmt"

	"github.com/sharetxn/sharetxn"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Sentinels; test with errors.Is. Each comes inside a *sharetxn.Error, of class
// usage.
var (
	// ErrUnknownKey: the brokers have no such group config. Check the name, and
	// the version of Kafka that brought it.
	ErrUnknownKey = errors.New("groupconfig: the brokers do not know this config")
	// ErrInvalidValue: a value that its config cannot have, or outside of the
	// bounds, which the brokers' own configuration may move. The text is the
	// broker's.
	ErrInvalidValue = errors.New("groupconfig: value refused")
)

// NotVisibleError says that a broker did not tell what was set before ctx ended.
// What was set stays: it may become visible later. The chain has ctx's cause.
type NotVisibleError struct {
	Group  string
	Broker int32
	Key    string // empty: the broker could not be asked
	Want   string // empty: the default
	Found  string
	Err    error
}

func (e *NotVisibleError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("groupconfig: configs of group %q are set, but broker %d could not be asked whether it has them: %v", e.Group, e.Broker, e.Err)
	}
	want := fmt.Sprintf("%q", e.Want)
	if e.Want == "" {
		want = "its default"
	}
	return fmt.Sprintf("groupconfig: configs of group %q are set, but broker %d still has %s=%q, not %s: %v", e.Group, e.Broker, e.Key, e.Found, want, e.Err)
}

// Unwrap gives Err.
func (e *NotVisibleError) Unwrap() error { return e.Err }

// refusal is a broker's code for a group's configs. class is what a caller can do
// about it.
func refusal(op, group string, code int16, message *string, sentinel error) error {
	out := &sharetxn.Error{Op: op, Class: sharetxn.ClassAbortable, Code: code, FromBroker: true, Group: group, Err: kerr.ErrorForCode(code)}
	text := ""
	if message != nil {
		text = *message
	}
	switch code {
	case kerr.InvalidConfig.Code, kerr.InvalidRequest.Code:
		out.Class, out.Err = sharetxn.ClassUsage, fmt.Errorf("%w: %s", sentinel, text)
	case kerr.GroupAuthorizationFailed.Code, kerr.ClusterAuthorizationFailed.Code:
		out.Class = sharetxn.ClassFatal
		out.Err = fmt.Errorf("%w (grant AlterConfigs and DescribeConfigs on the group): %s", out.Err, text)
	case kerr.UnsupportedVersion.Code:
		out.Class, out.Err = sharetxn.ClassFatal, fmt.Errorf("%w: %s", sharetxn.ErrUnsupported, text)
	}
	return out
}

func usage(op, group, format string, args ...any) error {
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassUsage, Group: group, Err: fmt.Errorf("%w: "+format, append([]any{sharetxn.ErrUsage}, args...)...)}
}
