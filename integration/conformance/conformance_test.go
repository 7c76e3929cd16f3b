package conformance

import (
	"flag"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/target"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// unlimited, since Run itself limits the cases on each cluster: one whose turn
// comes late must not wait for the cases of another.
const unlimited = "10000"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", unlimited); err != nil {
		panic(err)
	}
	testkit.Main(m)
}

// whole is the limit of a whole run; each case has its own beside.
const whole = 15 * time.Minute

// Beside real Kafka, whose brokers leave it the time while they start.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	testkit.Deadline(t, whole)
	Run(t, Embedded)
}

// On real Kafka of each kind that package target knows of here.
func TestReal(t *testing.T) {
	t.Parallel()
	testkit.Deadline(t, whole)
	for _, kind := range target.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			Run(t, func(t *testing.T, brokers int) Target {
				k, err := Real(t, kind, brokers)
				target.Require(t, err)
				return k
			})
		})
	}
}
