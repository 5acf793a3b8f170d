package pglock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// ownedSQL shows the rows of a key's holders: whose they are, and of which live process of
// the server, 0 if of none.
var ownedSQL = numbers.Replace(`SELECT h.owner, coalesce(s.pid, 0) FROM (
	SELECT owner, session FROM fencelock.held WHERE key = $1::bigint AND owner IS NOT NULL
	UNION ALL SELECT owner, session FROM fencelock.sharer WHERE key = $1::bigint
) h LEFT JOIN ` + sessionLocks + ` s ON s.id = h.session`)

// tellAgain is after how long a holder that has not let go is told once more: it may not
// have had the answer to its request yet when it was told.
const tellAgain = 100 * time.Millisecond

// BreakOwner is Break for one acquisition: that of owner, and of nobody else. The holder
// lets go by itself, if it is of this version. With Config.ForceBreak the connection of one
// that has not let go is ended, and its other locks with it.
func (e *Engine) BreakOwner(ctx context.Context, name, owner, reason string) (int64, error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	key := keyOf(name)
	backend, others, err := e.owned(ctx, key, owner)
	if err != nil {
		return 0, failure(err)
	}
	if backend < 0 {
		return 0, notHeld(name)
	}
	closed, err := e.ask(ctx, minimumSQL, key)
	if err != nil {
		return 0, failure(err)
	}
	own, token, err := e.mint(ctx)
	if err != nil {
		return 0, failure(err)
	}
	if len(closed) > 0 && !others {
		if _, err := own.Query(reopenSQL, key, closed[0].Int(0)).Wait(ctx); err != nil {
			return token, failure(err)
		}
	}
	err = e.endOwner(ctx, own, key, owner, reason)
	if errors.Is(err, errKept) && e.cfg.ForceBreak {
		err = e.cutOwner(ctx, key, owner)
		if err == nil {
			err = e.endOwner(ctx, own, key, owner, reason)
		}
	}
	if err != nil {
		return token, failure(err)
	}
	return token, nil
}

// cutOwner ends the connection of an owner that still holds a key.
func (e *Engine) cutOwner(ctx context.Context, key int64, owner string) error {
	backend, _, err := e.owned(ctx, key, owner)
	if err == nil && backend > 0 {
		_, err = e.ask(ctx, terminateSQL, key, array([]int64{backend}))
	}
	return err
}

// owned returns the server's process of an owner that holds a key: 0 if it is not
// connected any more, -1 if it does not hold it; and whether others do.
func (e *Engine) owned(ctx context.Context, key int64, owner string) (backend int64, others bool, err error) {
	rows, err := e.ask(ctx, ownedSQL, key)
	backend = -1
	for _, r := range rows {
		if r.Text(0) == owner {
			backend = r.Int(1)
		} else {
			others = true
		}
	}
	return backend, others, err
}

// errKept is why a break is not complete.
var errKept = errors.New("has not let go of the lock; end it with pg_terminate_backend, which frees its other locks as well, or set ForceBreak")

// endOwner tells a holder to let go, and waits up to BreakWait until it has. The row of one
// that vanished is freed.
func (e *Engine) endOwner(ctx context.Context, own *session, key int64, owner, reason string) error {
	told, end := time.Time{}, time.Now().Add(e.cfg.BreakWait)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		backend, _, err := e.owned(ctx, key, owner)
		switch {
		case err != nil || backend < 0:
			return err
		case backend == 0:
			_, err = own.Query(forgetSQL, key, owner).Wait(ctx)
			return err
		case time.Now().After(end):
			return fmt.Errorf("server process %d %w", backend, errKept)
		}
		if time.Since(told) > tellAgain {
			told = time.Now()
			if _, err := own.Query("SELECT pg_notify('fencelock', $1::text)", brokenOwner(key, owner, reason)).Wait(ctx); err != nil {
				return err
			}
		}
		if !retry.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// brokenOwner is the notification that the hold of owner is broken.
func brokenOwner(key int64, owner, reason string) string {
	reason = reason[:min(len(reason), maxReason)]
	return fmt.Sprintf("break-owner %d %s %s", key, owner, strings.ToValidUTF8(reason, ""))
}

// brokenOwner lets go of the hold of owner.
func (e *Engine) brokenOwner(key int64, owner, reason string) {
	e.holds.mu.Lock()
	h := e.holds.byOwner[owner]
	here := h != nil && h.key == key && e.holds.dropLocked(h)
	e.holds.mu.Unlock()
	if here {
		h.tell(fmt.Errorf("%w: %q was broken: %s", driver.ErrLost, h.name, reason))
		_ = e.release(context.Background(), h) // a session that cannot let go has ended
	}
}
