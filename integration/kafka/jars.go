// Package kafka starts stock Apache Kafka brokers as processes, from the jars
// that Maven's own client fetches. Only tests and bench import it.
package kafka

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// DefaultVersion is what the tests are written against.
const DefaultVersion = "4.4.0"

// Version is the broker version: SHARETXN_KAFKA_VERSION, or DefaultVersion.
func Version() string { return cmp.Or(os.Getenv("SHARETXN_KAFKA_VERSION"), DefaultVersion) }

// ErrUnavailable means that no broker can be had here: no Java, no Maven, or
// the jars cannot be fetched. A broker that does not start is another error.
var ErrUnavailable = errors.New("stock Kafka is not to be had on this machine")

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
