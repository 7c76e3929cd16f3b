// Package kopts reads kgo options back, to refuse those that would give a
// client of ours another role. kgo's options are opaque, but a client made
// with them tells their values (kgo.Client.OptValues).
package kopts

import (
	"context"
	"fmt"
	"reflect"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Set gives those of names (kgo option functions, as "ConsumerGroup") that opts
// set to something else than kgo's default, in the order of names. The error is
// kgo's own verdict on opts. No connection is opened and no goroutine is left.
func Set(opts []kgo.Opt, names []string) ([]string, error) {
	given, err := probe(opts...)
	if err != nil {
		return nil, err
	}
	defer given.Close()
	plain, err := probe()
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	var set []string
	for _, name := range names {
		was := plain.OptValues(name)
		if was == nil {
			return nil, fmt.Errorf("kgo knows no option %s", name)
		}
		if !same(was, given.OptValues(name)) {
			set = append(set, name)
		}
	}
	return set, nil
}

// Values gives what opts set the option name to, or kgo's default. The error is
// kgo's own verdict on opts.
func Values(opts []kgo.Opt, name string) ([]any, error) {
	given, err := probe(opts...)
	if err != nil {
		return nil, err
	}
	defer given.Close()
	values := given.OptValues(name)
	if values == nil {
		return nil, fmt.Errorf("kgo knows no option %s", name)
	}
	return values, nil
}

// probe makes a client that reaches nothing: a client with a consuming role
// would ask for metadata as soon as it is made, and leave a group when closed;
// an ended context stops both before they dial.
func probe(opts ...kgo.Opt) (*kgo.Client, error) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	opts = append(append([]kgo.Opt{kgo.WithLogger(silent{})}, opts...), kgo.WithContext(ended))
	return kgo.NewClient(opts...)
}

// silent stands where the user gave no logger.
type silent struct{}

func (silent) Level() kgo.LogLevel              { return kgo.LogLevelNone }
func (silent) Log(kgo.LogLevel, string, ...any) {}

// same compares option values; functions count as the same only if both are
// nil or both are the same function.
func same(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		va, vb := reflect.ValueOf(a[i]), reflect.ValueOf(b[i])
		if va.IsValid() && vb.IsValid() && va.Kind() == reflect.Func && vb.Kind() == reflect.Func {
			if va.Pointer() != vb.Pointer() {
				return false
			}
			continue
		}
		if !reflect.DeepEqual(a[i], b[i]) {
			return false
		}
	}
	return true
}
