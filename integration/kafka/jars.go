// Package kafka gives tests and bench stock Apache Kafka: brokers as processes,
// from the jars that Maven's own client fetches, or a cluster that exists.
// Package container, which adds brokers in containers, builds on it, and package
// target chooses among them.
//
// Stock is the software, not its settings: those are for quick tests on few
// brokers (see Configure): heartbeats of share groups every 0.5 s, locks from 1 s
// on, one replica of the internal topics on one broker, a small heap. Who measures
// or looks for a default sets them anew with Set and JVM.
package kafka

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// DefaultVersion is what the tests are written against.
const DefaultVersion = "4.4.0"

// VersionEnv names the variable with the version of Kafka to run.
const VersionEnv = "SHARETXN_KAFKA_VERSION"

// Version is the broker version: VersionEnv, or DefaultVersion.
func Version() string { return cmp.Or(os.Getenv(VersionEnv), DefaultVersion) }

// Runtime is what runs a version's classes.
type Runtime struct {
	Java string // the program
	Jars string // the folder of the jars
}

// classpath lists the jars in a fixed order, which a class archive depends on.
func (r Runtime) classpath() string {
	jars, _ := filepath.Glob(filepath.Join(r.Jars, "*.jar")) // fails for a bad pattern only
	return strings.Join(jars, string(os.PathListSeparator))
}

// Installed is Install with its answers in one.
func Installed(ctx context.Context, version string) (Runtime, error) {
	java, jars, err := Install(ctx, version)
	return Runtime{java, jars}, err
}

//go:embed pom.xml
var pom []byte

// Install returns Java's path and the folder of a version's jars, which are
// fetched once per version into the user's cache. Beside the broker they hold
// Kafka's own clients and command line tools.
func Install(ctx context.Context, version string) (java, jars string, err error) {
	if java, err = exec.LookPath("java"); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	cache = filepath.Join(cache, "sharetxn")
	jars = filepath.Join(cache, "kafka-"+version)
	if _, err := os.Stat(jars); err == nil {
		return java, jars, nil
	}
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", "", err
	}
	// Fetched beside and renamed, so that a folder of that name is whole.
	tmp, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(tmp)
	if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), pom, 0o644); err != nil {
		return "", "", err
	}
	cmd := exec.CommandContext(ctx, mvn, "-B", "-q", "dependency:copy-dependencies",
		"-Dkafka.version="+version, "-DoutputDirectory="+filepath.Join(tmp, "libs"))
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("%w: mvn: %w\n%s", ErrUnavailable, err, out)
	}
	if err := os.Rename(filepath.Join(tmp, "libs"), jars); err != nil {
		if _, other := os.Stat(jars); other != nil { // not that another process was first
			return "", "", err
		}
	}
	return java, jars, nil
}
