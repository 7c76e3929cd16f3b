package txnmanager_test

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/txnmanager"
)

func TestTimeoutUnder(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	const s = time.Second
	for name, tc := range map[string]struct{ lock, scan, margin, want time.Duration }{
		"Kafka's defaults":               {30 * s, 10 * s, 2 * s, 15 * s},
		"a long lock":                    {60 * s, 10 * s, 2 * s, 15 * s},
		"the shortest lock that is full": {27 * s, 10 * s, 2 * s, 15 * s},
		"a little shorter":               {26 * s, 10 * s, 2 * s, 14 * s},
		"just above the floor":           {17*s + time.Millisecond, 10 * s, 2 * s, 5*s + time.Millisecond},
		"at the floor":                   {17 * s, 10 * s, 2 * s, 5 * s},
		"Kafka's shortest lock":          {15 * s, 10 * s, 2 * s, 5 * s},
		"nothing left":                   {12 * s, 10 * s, 2 * s, 5 * s},
		"less than nothing":              {s, 10 * s, 2 * s, 5 * s},
		"brokers that look often":        {15 * s, s, 2 * s, 12 * s},
		"brokers that look at once":      {10 * s, time.Millisecond, 2 * s, 8*s - time.Millisecond},
		"brokers that look rarely":       {30 * s, 60 * s, 2 * s, 5 * s},
		"no margin":                      {20 * s, 10 * s, 0, 10 * s},
		"a wide margin":                  {20 * s, 10 * s, 4 * s, 8 * s},
		"a margin near the default":      {60 * s, 10 * s, 14 * s, 15 * s},
		"an unknown lock":                {0, 10 * s, 2 * s, 15 * s},
	} {
		t.Run(name, func(t *testing.T) {
			got := txnmanager.TimeoutUnder(tc.lock, tc.scan, tc.margin)
			if got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
			if got <= tc.margin {
				t.Errorf("%v leaves nothing before the margin of %v", got, tc.margin)
			}
		})
	}
}
