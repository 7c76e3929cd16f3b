// Package target chooses what real Kafka tests run on. The choice is made here
// and nowhere else:
//
//   - SHARETXN_BOOTSTRAP=host:port: that cluster and no other;
//   - SHARETXN_KAFKA_KIND=process or container: only that kind;
//   - otherwise brokers as processes and brokers in containers, of which a test
//     that runs once takes the first that the machine offers.
package target

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/sharetxn/sharetxn/integration/container"
	"github.com/sharetxn/sharetxn/integration/kafka"
)

// KindEnv names the variable that holds tests to one kind of cluster.
const KindEnv = "SHARETXN_KAFKA_KIND"

// Kinds are the kinds of clusters to run tests on, the preferred one first. A
// suite that is run on each asks Open for each of them.
func Kinds() []kafka.Kind {
	if len(kafka.Bootstrap()) > 0 {
		return []kafka.Kind{kafka.Existing}
	}
	if kind := os.Getenv(KindEnv); kind != "" {
		return []kafka.Kind{kafka.Kind(kind)}
	}
	return []kafka.Kind{kafka.Process, kafka.Container}
}

// Available tells whether a cluster of that kind can be had here: nil, or an
// error that wraps kafka.ErrUnavailable and says what is missing. What must be
// fetched first is fetched.
func Available(ctx context.Context, kind kafka.Kind) error {
	switch kind {
	case kafka.Existing:
		if len(kafka.Bootstrap()) == 0 {
			return fmt.Errorf("%w: %s is not set", kafka.ErrUnavailable, kafka.BootstrapEnv)
		}
		return nil
	case kafka.Process:
		_, err := kafka.Installed(ctx, kafka.Version())
		return err
	case kafka.Container:
		return container.Available(ctx)
	}
	return fmt.Errorf("%s=%s: there are %s and %s", KindEnv, kind, kafka.Process, kafka.Container)
}

// Open gives a cluster of that kind with n brokers; processes keep their files
// in dir. Settings are for brokers that are started. Stop it in the end. A cluster that exists has the brokers it has, and
// is not asked for more: with n above one its answer is kafka.ErrNotOurs, since
// who asks for several wants to disturb some.
func Open(ctx context.Context, kind kafka.Kind, dir string, n int, settings ...kafka.Setting) (*kafka.Cluster, error) {
	switch kind {
	case kafka.Existing:
		if n > 1 {
			return nil, kafka.ErrNotOurs
		}
		return kafka.Join(ctx, kafka.Bootstrap()...)
	case kafka.Container:
		return container.Start(ctx, n, settings...)
	case kafka.Process:
		return kafka.Start(ctx, dir, n, settings...)
	}
	return nil, Available(ctx, kind)
}

// Start opens a cluster of the first of Kinds that is available.
func Start(ctx context.Context, dir string, n int, settings ...kafka.Setting) (*kafka.Cluster, error) {
	var missing []error
	for _, kind := range Kinds() {
		c, err := Open(ctx, kind, dir, n, settings...)
		if !errors.Is(err, kafka.ErrUnavailable) {
			return c, err
		}
		missing = append(missing, fmt.Errorf("%s: %w", kind, err))
	}
	return nil, errors.Join(missing...)
}

// Require fails the test for an error of a cluster. What only says that the
// machine has no such cluster, or that it must not be disturbed, skips the test
// instead and tells why; in CI that too is a failure.
func Require(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") != "true" && (errors.Is(err, kafka.ErrUnavailable) || errors.Is(err, kafka.ErrNotOurs)) {
		t.Skip("needs real Kafka: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Offer is what the machine has of one kind.
type Offer struct {
	Kind    kafka.Kind
	Has     string // if Missing is nil
	Missing error
}

func (o Offer) String() string {
	if o.Missing != nil {
		return fmt.Sprintf("%s: none, %v", o.Kind, o.Missing)
	}
	return fmt.Sprintf("%s: %s", o.Kind, o.Has)
}

// Offers looks at all of Kinds.
func Offers(ctx context.Context) []Offer {
	var offers []Offer
	for _, kind := range Kinds() {
		o := Offer{Kind: kind, Missing: Available(ctx, kind)}
		switch kind {
		case kafka.Existing:
			o.Has = os.Getenv(kafka.BootstrapEnv)
		case kafka.Process:
			o.Has = kafka.Version()
		case kafka.Container:
			o.Has = container.Image() + ", " + container.Source()
		}
		offers = append(offers, o)
	}
	return offers
}

// Tools are programs that some tests need beside a broker: they build Java
// clients. It names those that are missing.
func Tools() (missing []string) {
	for _, tool := range []string{"javac", "jlink"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	return missing
}
