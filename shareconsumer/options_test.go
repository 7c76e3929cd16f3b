package shareconsumer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// configOf applies options as New does.
func configOf(opts ...Opt) (config, error) {
	c := defaults()
	for _, o := range opts {
		o.apply(&c)
	}
	return c, c.check()
}

func TestOptionsAreChecked(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for name, c := range map[string]struct {
		opts []Opt
		want string // in the error; empty: none
	}{
		"topics":              {[]Opt{Topics("b", "a"), Topics("a")}, ""},
		"no topic":            {nil, "Topics"},
		"empty topic":         {[]Opt{Topics("a", "")}, "Topics"},
		"mode":                {[]Opt{Topics("a"), AcknowledgementMode(9)}, "Mode(9)"},
		"acquire mode":        {[]Opt{Topics("a"), AcquireMode(9)}, "Acquire(9)"},
		"record limit":        {[]Opt{Topics("a"), AcquireMode(RecordLimit)}, ""},
		"no records":          {[]Opt{Topics("a"), MaxPollRecords(0)}, "MaxPollRecords"},
		"no bytes":            {[]Opt{Topics("a"), MaxBytes(0)}, "MaxBytes"},
		"wait too short":      {[]Opt{Topics("a"), MaxWait(time.Microsecond)}, "MaxWait"},
		"negative margin":     {[]Opt{Topics("a"), LockMargin(-1)}, "LockMargin"},
		"no time to close":    {[]Opt{Topics("a"), CloseTimeout(0)}, "CloseTimeout"},
		"blank rack":          {[]Opt{Topics("a"), ClientRack(" ")}, "ClientRack"},
		"negative interval":   {[]Opt{Topics("a"), MaxPollInterval(-1)}, "MaxPollInterval"},
		"interval":            {[]Opt{Topics("a"), MaxPollInterval(time.Second)}, ""},
		"property":            {[]Opt{Topics("a"), Properties(map[string]string{"max.poll.records": "7"})}, ""},
		"unreadable property": {[]Opt{Topics("a"), Properties(map[string]string{"max.poll.records": "x"})}, "max.poll.records"},
		"out of bounds":       {[]Opt{Topics("a"), Properties(map[string]string{"max.poll.interval.ms": "-5"})}, "MaxPollInterval"},
		"no such mode":        {[]Opt{Topics("a"), Properties(map[string]string{"share.acquire.mode": "some"})}, "share.acquire.mode"},
		"transactional mode":  {[]Opt{Topics("a"), Properties(map[string]string{"share.acknowledgement.mode": "transactional"})}, "cannot be read"},
		"unknown property":    {[]Opt{Topics("a"), Properties(map[string]string{"max.pol.records": "7"})}, "not known here"},
		"the group's":         {[]Opt{Topics("a"), Properties(map[string]string{"isolation.level": "read_committed"})}, "share.isolation.level"},
		"all are told":        {[]Opt{Topics("a"), Properties(map[string]string{"group.id": "g", "zzz": ""})}, "zzz"},
	} {
		_, err := configOf(c.opts...)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (!errors.Is(err, sharetxn.ErrUsage) || sharetxn.ClassOf(err) != sharetxn.ClassUsage || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each property sets what the option of its own sets.
func TestProperties(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	c, err := configOf(Topics("b", "a", "b"), Properties(map[string]string{
		"share.acknowledgement.mode": "implicit",
		"share.acquire.mode":         "record_limit",
		"max.poll.records":           "7",
		"max.poll.interval.ms":       "300000",
		"fetch.max.bytes":            "1000",
		"fetch.max.wait.ms":          "20",
		"client.rack":                "r",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if c.mode != Implicit || c.acquire != RecordLimit || c.maxPollRecords != 7 || c.maxPollInterval != 5*time.Minute || c.maxBytes != 1000 ||
		c.maxWait != 20*time.Millisecond || c.rack != "r" || strings.Join(c.topics, " ") != "a b" {
		t.Errorf("%+v", c)
	}
	c, err = configOf(Topics("a"), Properties(map[string]string{"share.acknowledgement.mode": "explicit", "share.acquire.mode": "batch_optimized", "max.poll.interval.ms": "0"}))
	if err != nil || c.mode != Explicit || c.acquire != BatchOptimized || c.maxPollInterval != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	for name := range properties {
		if _, too := elsewhere[name]; too {
			t.Errorf("%s is both taken and refused", name)
		}
	}
}
