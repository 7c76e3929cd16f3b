package conformance

import (
	"flag"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/target"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// Cases wait for locks and assignments most of the time.
const beside = "16"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", beside); err != nil {
		panic(err)
	}
	testkit.Main(m)
}

// whole is the limit of a whole run; each case has its own beside.
const whole = 15 * time.Minute

func TestEmbedded(t *testing.T) {
	testkit.Deadline(t, whole)
	Run(t, Embedded)
}

// On real Kafka of each kind that package target knows of here.
func TestReal(t *testing.T) {
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
