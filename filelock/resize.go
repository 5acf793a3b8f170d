package filelock

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/fencelock/fencelock/driver"
)

// limitFile keeps the limit that Resize has set. It is only ever replaced as a
// whole, unlike the numbers that every acquisition changes: a process or a
// machine that dies meanwhile leaves the old limit or the new one.
const limitFile = "limit"

// Resize sets the limit of a shared name for everybody; see [driver.Resizer].
// It returns once the limit is durable, and the directory of the name keeps it
// for ever. When it fails with ErrUnavailable the old limit or the new one is in
// force, and it may be called again.
func (e *Engine) Resize(ctx context.Context, name string, limit int) error {
	if err := driver.CheckResize(name, limit); err != nil {
		return err
	}
	if err := e.ready(true); err != nil {
		return err
	}
	err := e.resize(ctx, name, limit)
	switch {
	case err == nil:
		e.wake(e.dirOf(name), 0)
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("resize %q: %w", name, err)
	}
	return e.unavailable(err)
}

// resize is Resize inside the gate.
func (e *Engine) resize(ctx context.Context, name string, limit int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g, err := e.enter(ctx, name, true)
	if err != nil {
		return err
	}
	defer g.leave()
	if err := g.writeNew(limitFile, formatNumber(int64(limit))); err != nil {
		return err
	}
	return syncDir(e.dir)
}

// limit returns the limit that Resize has set, 0 if it never has.
func (g *nameLock) limit() (int, error) {
	n, ok, err := g.readNumber(limitFile)
	if err == nil && (!ok || 1 <= n && n <= math.MaxInt) {
		return int(n), nil
	}
	if err == nil || errors.Is(err, errDamaged) {
		return 0, fmt.Errorf("%w: %q is damaged: set the limit again with Resize, or remove the file to go by the limits of the requests", driver.ErrUnavailable, g.path(limitFile))
	}
	return 0, err
}
