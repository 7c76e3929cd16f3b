package groupconfig

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Configs are the configs of a group as a broker told them. A field whose key the
// broker does not have is zero; Entry tells that apart.
type Configs struct {
	AutoOffsetReset    string
	IsolationLevel     Isolation
	LockDuration       time.Duration
	DeliveryCountLimit int
	MaxRecordLocks     int
	RenewAcknowledge   bool
	SessionTimeout     time.Duration
	HeartbeatInterval  time.Duration
	AssignmentInterval time.Duration

	// Entries are all configs, also those without a field here, by key.
	Entries []Entry
}

// Entry is one config as a broker told it.
type Entry struct {
	Key, Value string
	Source     Source
}

// Source is where a value comes from.
type Source uint8

const (
	// SourceDefault: nobody set it.
	SourceDefault Source = iota
	// SourceBroker: the brokers' configuration.
	SourceBroker
	// SourceGroup: the group's own config, as Set sets it.
	SourceGroup
)

func (s Source) String() string {
	switch s {
	case SourceDefault:
		return "default"
	case SourceBroker:
		return "broker"
	case SourceGroup:
		return "group"
	}
	return "Source(" + strconv.Itoa(int(s)) + ")"
}

// Entry finds a config by its key; ok is false if the broker does not have it.
func (c Configs) Entry(key string) (e Entry, ok bool) {
	at, ok := slices.BinarySearchFunc(c.Entries, key, func(e Entry, key string) int { return cmp.Compare(e.Key, key) })
	if !ok {
		return Entry{}, false
	}
	return c.Entries[at], true
}

// read makes Configs of a broker's answer. A value that is not of the kind that
// its key has leaves the field zero; it is among Entries as it came.
func read(told []kmsg.DescribeConfigsResponseResourceConfig) Configs {
	var c Configs
	for _, t := range told {
		e := Entry{Key: t.Name, Source: sourceOf(t.Source)}
		if t.Value != nil {
			e.Value = *t.Value
		}
		c.Entries = append(c.Entries, e)
		number := func() int { n, _ := strconv.Atoi(e.Value); return n }
		duration := func() time.Duration { return time.Duration(number()) * time.Millisecond }
		switch e.Key {
		case keyAutoOffsetReset:
			c.AutoOffsetReset = e.Value
		case keyIsolationLevel:
			c.IsolationLevel = Isolation(e.Value)
		case keyLockDuration:
			c.LockDuration = duration()
		case keyDeliveryCountLimit:
			c.DeliveryCountLimit = number()
		case keyMaxRecordLocks:
			c.MaxRecordLocks = number()
		case keyRenewAcknowledge:
			c.RenewAcknowledge = e.Value == "true"
		case keySessionTimeout:
			c.SessionTimeout = duration()
		case keyHeartbeatInterval:
			c.HeartbeatInterval = duration()
		case keyAssignmentInterval:
			c.AssignmentInterval = duration()
		}
	}
	slices.SortFunc(c.Entries, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	return c
}

func sourceOf(s kmsg.ConfigSource) Source {
	switch s {
	case kmsg.ConfigSourceGroupConfig:
		return SourceGroup
	case kmsg.ConfigSourceDefaultConfig:
		return SourceDefault
	default:
		return SourceBroker
	}
}

// missing is what of settings is not as wanted here yet; found is what is there
// instead.
func (c Configs) missing(settings []Setting) (s Setting, found string, any bool) {
	for _, s := range settings {
		e, has := c.Entry(s.key)
		switch {
		case s.unset && e.Source == SourceGroup, !s.unset && e.Value != s.value:
			return s, e.Value, true
		case !s.unset && !has:
			return s, "", true
		}
	}
	return Setting{}, "", false
}
