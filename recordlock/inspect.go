package recordlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
)

// Inspect uses the engine on probe names and compares the store's clock with that of this host. It
// reports if there is no clock; see [driver.Inspector].
func (e *Engine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	t := inspect.Trial{Engine: e, Name: inspect.NewName(), TTL: ttl,
		Denied: func(err error) bool { return errors.Is(err, driver.ErrConfig) },
		Grant:  "grant all rights that the records need; the documentation of their package lists them"}
	findings, err := t.Run(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	if _, _, err := e.records.Clock(ctx); errors.Is(err, driver.ErrUnsupported) {
		findings = append(findings, inspect.Found("clock", driver.Warning, "the store has no clock",
			"a process that asks once cannot take over from a holder that has died", "let such processes wait for twice the TTL"))
	}
	return findings, nil
}
