package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/sharetxn/sharetxn/bench/contender"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/integration/kafka"
)

// entrant is a contender with settings.
type entrant struct {
	Who  string `json:"who"`
	Best bool   `json:"best"` // best settings, not defaults
}

func (e entrant) settings() string {
	if e.Best {
		return "best"
	}
	return "default"
}

func (e entrant) String() string { return e.Who + ", " + e.settings() }

// The contenders: java is the one that is not in Go, and floor the one that does
// not look at what it reads.
const (
	ours  = "ours"
	kgos  = "kgo"
	java  = "java"
	floor = "floor"
)

var contenders = []string{ours, kgos, java, floor}

// bestLocks is the most records of a partition that Kafka 4.4 lets a group have
// locked: a setting of the group, and so of all its members.
const bestLocks = 4000

func (e entrant) groupSettings() []groupconfig.Setting {
	if e.Best {
		return []groupconfig.Setting{groupconfig.MaxRecordLocks(bestLocks)}
	}
	return nil
}

// camp starts entrants' processes and keeps them for their next runs.
type camp struct {
	profiles string // folder for CPU profiles of those in Go; empty: none
	dir      string // for what they need while they run
	running  map[entrant]*contender.Process
}

func newCamp(profiles string) (*camp, error) {
	if profiles != "" {
		if err := os.MkdirAll(profiles, 0o755); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "sharetxn-bench-")
	if err != nil {
		return nil, err
	}
	return &camp{profiles, dir, make(map[entrant]*contender.Process)}, nil
}

// call gives an entrant's process; title tells contests apart in the names of
// profiles.
func (c *camp) call(ctx context.Context, e entrant, title string) (*contender.Process, error) {
	if p := c.running[e]; p != nil {
		return p, nil
	}
	p, err := c.start(ctx, e, title)
	if err != nil {
		return nil, err
	}
	c.running[e] = p
	return p, nil
}

func (c *camp) start(ctx context.Context, e entrant, title string) (*contender.Process, error) {
	if e.Who == java {
		java, jars, err := kafka.Install(ctx, kafka.Version())
		if err != nil {
			return nil, err
		}
		return contender.StartJava(java, jars, c.dir)
	}
	profile := ""
	if c.profiles != "" {
		profile = filepath.Join(c.profiles, profileName(title, e))
	}
	return contender.StartGo(e.Who, profile)
}

func profileName(title string, e entrant) string {
	return fmt.Sprintf("%s-%s-%s.prof", title, e.Who, e.settings())
}

// dismiss stops an entrant's process.
func (c *camp) dismiss(e entrant) {
	if p := c.running[e]; p != nil {
		p.Stop()
		delete(c.running, e)
	}
}

// strike stops all.
func (c *camp) strike() error {
	for e := range c.running {
		c.dismiss(e)
	}
	return os.RemoveAll(c.dir)
}

// field lists the entrants of some contenders, all with their defaults first.
func field(who []string, best ...bool) (es []entrant) {
	for _, b := range best {
		for _, name := range contenders {
			if slices.Contains(who, name) {
				es = append(es, entrant{name, b})
			}
		}
	}
	return es
}
