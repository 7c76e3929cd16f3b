package lapse

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestFor(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	synctest.Test(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		ends, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		for name, c := range map[string]struct {
			ctx  context.Context
			d    time.Duration
			want bool
			took time.Duration
		}{
			"passes":                        {t.Context(), time.Hour, true, time.Hour},
			"nothing to wait for":           {t.Context(), 0, true, 0},
			"nothing, and the end has come": {ended, -time.Second, false, 0},
			"the end has come":              {ended, time.Hour, false, 0},
		} {
			began := time.Now()
			if got := For(c.ctx, c.d); got != c.want || time.Since(began) != c.took {
				t.Errorf("%s: %v after %v", name, got, time.Since(began))
			}
		}
		began, left := time.Now(), time.Duration(0)
		if end, ok := ends.Deadline(); ok {
			left = max(0, time.Until(end))
		}
		if For(ends, 24*time.Hour) || time.Since(began) != left {
			t.Errorf("an end that comes first: after %v", time.Since(began))
		}
	})
}
