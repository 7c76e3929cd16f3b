package share

import (
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestGroupConfigs(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil, func(c *Config) { c.MinLockDuration = 0 })
	for _, c := range []struct {
		name, value string
		ok          bool
	}{
		// What Kafka 4.4.0 took and refused.
		{configSession, "44999", false}, {configSession, "45000", true}, {configSession, "60001", false},
		{configHeartbeat, "4999", false}, {configHeartbeat, "15000", true},
		{configAssignment, "0", true}, {configAssignment, "15001", false},
		{configLimit, "1", false}, {configLimit, "2", true}, {configLimit, "10", true}, {configLimit, "11", false},
		{configLocks, "99", false}, {configLocks, "4000", true},
		{configReset, resetByDuration + "PT0S", true}, {configReset, resetByDuration + "PT1.5S", true}, {configReset, resetByDuration + "-PT1S", false},
		{configReset, resetByDuration + "P1DT2H", true}, {configReset, resetByDuration, false}, {configReset, "none", false}, {configReset, "latest", true},
		{configIsolation, "READ_COMMITTED", false}, {configIsolation, isolationCommit, true}, {configIsolation, isolationUncommit, true},
		{configRenew, "maybe", false}, {configRenew, "false", true},
		{configLock, "999", false}, {configLock, "1000", true}, {configLock, "60000", true}, {configLock, "60001", false}, {configLock, "x", false},
		{"nope", "1", false},
	} {
		before := effective(r, "x")[c.name]
		err := r.e.SetGroupConfig("x", map[string]*string{c.name: &c.value})
		if (err == nil) != c.ok {
			t.Errorf("%s=%s: %v", c.name, c.value, err)
		}
		want := before
		if c.ok {
			want = c.value
		}
		if got := effective(r, "x")[c.name]; got != want {
			t.Errorf("%s after %s is %q, want %q", c.name, c.value, got, want)
		}
	}
	good, bad := "7", "70"
	if err := r.e.SetGroupConfig("y", map[string]*string{configLimit: &good, configLocks: &bad}); err == nil || effective(r, "y")[configLimit] != "5" {
		t.Errorf("one bad of two: %v, limit is %s", err, effective(r, "y")[configLimit])
	}
	if err := r.e.SetGroupConfig("y", map[string]*string{configLimit: &good}); err != nil || effective(r, "y")[configLimit] != "7" {
		t.Errorf("the good one: %v", err)
	}
	if err := r.e.SetGroupConfig("y", map[string]*string{configLimit: nil}); err != nil || effective(r, "y")[configLimit] != "5" {
		t.Errorf("back to the default: %v, limit is %s", err, effective(r, "y")[configLimit])
	}
	defaults := map[string]string{
		configReset: "latest", configIsolation: isolationUncommit, configLock: "30000", configLimit: "5", configLocks: "2000", configRenew: "true",
		configSession: "45000", configHeartbeat: "5000", configAssignment: "0",
	}
	got := effective(r, "never seen")
	for k, v := range defaults {
		if got[k] != v {
			t.Errorf("%s is %q by default, want %q", k, got[k], v)
		}
	}
	if len(got) != len(defaults) {
		t.Errorf("%d configs, want %d", len(got), len(defaults))
	}
}

func TestISODuration(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for text, want := range map[string]time.Duration{
		"PT0S": 0, "PT1S": time.Second, "PT1.5S": 1500 * time.Millisecond, "PT2M": 2 * time.Minute, "PT3H": 3 * time.Hour, "P1D": 24 * time.Hour,
		"P1DT2H3M4S": 26*time.Hour + 3*time.Minute + 4*time.Second, "PT90M": 90 * time.Minute,
	} {
		if got, err := parseISODuration(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "P", "PT", "P1DT", "1S", "PT1", "PTS", "P1H", "PT1D", "PT1S1M", "PT1S2S", "-PT1S", "PT-1S", "P1M", "PT1.S", "PT.5S", "PT1.5M", "P999999999D", "PT9999999999S"} {
		if got, err := parseISODuration(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

// effective gives a group's configs as a map.
func effective(r *rig, group string) map[string]string {
	out := make(map[string]string)
	for _, x := range r.e.GroupConfig(group) {
		out[x.Name] = x.Value
	}
	return out
}

// What a group has of its own is told from what it has by default.
func TestConfigEntries(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	limit := "7"
	if err := r.e.SetGroupConfig("own", map[string]*string{configLimit: &limit}); err != nil {
		t.Fatal(err)
	}
	find := func(group, name string) ConfigEntry {
		for _, x := range r.e.GroupConfig(group) {
			if x.Name == name {
				return x
			}
		}
		return ConfigEntry{}
	}
	for _, c := range []struct {
		group string
		want  ConfigEntry
	}{
		{"own", ConfigEntry{configLimit, "7", kmsg.ConfigTypeInt, "5", "group.share.delivery.count.limit", true}},
		{"other", ConfigEntry{configLimit, "5", kmsg.ConfigTypeInt, "5", "group.share.delivery.count.limit", false}},
		{"own", ConfigEntry{configRenew, "true", kmsg.ConfigTypeBoolean, "true", configRenew, false}},
		{"own", ConfigEntry{configReset, "latest", kmsg.ConfigTypeString, "latest", configReset, false}},
	} {
		if got := find(c.group, c.want.Name); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.group, got, c.want)
		}
	}
	if got := r.e.Configured(); !slices.Equal(got, []string{"own"}) {
		t.Errorf("configured groups are %v", got)
	}
	if err := r.e.SetGroupConfig("own", map[string]*string{configLimit: nil}); err != nil || len(r.e.Configured()) != 0 {
		t.Errorf("after the deletion: %v, %v", err, r.e.Configured())
	}
}
