package recordlock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
)

// Inspect uses the engine on probe names and compares the store's clock with that of this host; see
// [driver.Inspector].
func (e *Engine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	t := inspect.Trial{Engine: e, Name: inspect.NewName(), TTL: ttl,
		Denied: func(err error) bool { return errors.Is(err, driver.ErrConfig) },
		Grant:  "grant all rights that the records need; the documentation of their package lists them"}
	findings, err := t.Run(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	clock, err := inspect.ReadClock(func() (earliest, latest time.Time, err error) { return e.records.Clock(ctx) })
	switch {
	case errors.Is(err, driver.ErrUnsupported):
		return append(findings, inspect.Found("clock", driver.Warning, "the store has no clock",
			"a process that asks once cannot take over from a holder that has died", "let such processes wait for twice the TTL")), nil
	case err != nil:
		return append(findings, inspect.Unchecked("clock", err, "try again")), nil
	}
	return append(findings, clock.Judge()), nil
}
