package conformance

import (
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/sharetxn/sharetxn/integration/kafka"
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

func TestEmbedded(t *testing.T) { Run(t, Embedded) }

func TestProcess(t *testing.T) {
	Run(t, func(t *testing.T, brokers int) Target {
		target, err := Process(t, brokers)
		if errors.Is(err, kafka.ErrUnavailable) && os.Getenv("CI") != "true" {
			t.Skip("needs stock Kafka, that is Java and Maven: ", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return target
	})
}
