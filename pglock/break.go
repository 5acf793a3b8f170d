package pglock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var (
	stmtMint      = &statement{"mint", `SELECT nextval('fencelock.token')`}
	stmtBroken    = &statement{"broken", `DELETE FROM fencelock.holder WHERE key = $1::bigint AND token < $2::bigint AND session <> 0`}
	stmtTerminate = &statement{"terminate", `SELECT count(*) FROM (SELECT pg_terminate_backend(l.pid)
	FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
	WHERE ` + lockRows + ` AND ` + lockKey + ` = $1::bigint AND l.granted AND l.pid = ANY (CAST($2::text AS integer[]))) x`}
)

// maxReason is the longest reason that is passed on, in bytes.
const maxReason = 500

// Break ends every acquisition of name and returns a token that shuts the holders
// out of guarded resources. Engines hear of it at once and let go. Holders that
// have not let go after Config.BreakWait, frozen ones and sessions that are no
// engine's, keep the lock, and Break returns the token together with a
// driver.ErrUnavailable that says who they are; with Config.ForceBreak it ends
// their connections. A holder that vanished, and keeps the name closed until its
// lease is over, is forgotten.
func (e *Engine) Break(ctx context.Context, name, reason string) (int64, error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	key := keyOf(name)
	before, err := e.holders(ctx, name, key)
	switch {
	case err != nil:
		return 0, unavailable(err)
	case len(before) == 0:
		return 0, notHeld(name)
	}
	own, err := e.ownSession(ctx)
	if err != nil {
		return 0, unavailable(err)
	}
	rows, err := own.run(ctx, stmtMint)
	if err != nil {
		return 0, unavailable(err)
	}
	token := own.epoch<<40 + rows[0].int(0)
	if _, err := own.run(ctx, stmtNotify, broken(key, token, reason)); err != nil {
		return token, unavailable(err)
	}
	return token, e.finish(ctx, key, token, before)
}

// holders returns the server processes that hold a key, 0 for one that is gone.
func (e *Engine) holders(ctx context.Context, name string, key int64) ([]int64, error) {
	locks, err := e.serverLocks(ctx, []int64{key})
	if err != nil {
		return nil, err
	}
	var all []int64
	for _, l := range locks {
		if l.granted {
			all = append(all, int64(l.backend))
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	rows, err := e.ask(ctx, stmtHolders, name, true)
	if err == nil && len(rows) > 0 {
		all = append(all, 0)
	}
	return all, err
}

// finish waits until the holders have let go, and ends their connections if they
// do not and the engine may.
func (e *Engine) finish(ctx context.Context, key, token int64, before []int64) error {
	left, err := e.letGoBy(ctx, key, token, before)
	if err != nil || len(left) == 0 {
		return err
	}
	if !e.cfg.ForceBreak {
		return unavailable(fmt.Errorf("server process %s has not let go of the lock; end it with pg_terminate_backend, which frees its other locks as well, or set ForceBreak",
			strings.Trim(array(left), "{}")))
	}
	if _, err := e.ask(ctx, stmtTerminate, key, array(left)); err != nil {
		return unavailable(err)
	}
	left, err = e.letGoBy(ctx, key, token, left)
	if err == nil && len(left) > 0 {
		err = unavailable(errors.New("the server was told to end the holder's connection and has not"))
	}
	return err
}

// letGoBy waits up to BreakWait until none of some server processes holds key, and
// returns those that still do. It then forgets holders that were broken.
func (e *Engine) letGoBy(ctx context.Context, key, token int64, from []int64) ([]int64, error) {
	end := time.Now().Add(e.cfg.BreakWait)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		locks, err := e.serverLocks(ctx, []int64{key})
		if err != nil {
			return nil, unavailable(err)
		}
		var left []int64
		for _, l := range locks {
			if l.granted && slices.Contains(from, int64(l.backend)) && !e.holdsSince(key, token, l.backend) {
				left = append(left, int64(l.backend))
			}
		}
		if len(left) == 0 {
			if _, err := e.ask(ctx, stmtBroken, key, token); err != nil {
				return nil, unavailable(err)
			}
			return nil, nil
		}
		if time.Now().After(end) {
			return left, nil
		}
		if err := sleep(ctx, pause, nil, nil); err != nil {
			return left, unavailable(err)
		}
	}
}

// holdsSince reports whether this process took the key again, after the break.
func (e *Engine) holdsSince(key, token int64, backend int32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range e.holds {
		if h.key == key && h.token > token && h.session.backend == backend {
			return true
		}
	}
	return false
}

// broken is the notification that every hold of key before token is broken.
func broken(key, token int64, reason string) string {
	reason = reason[:min(len(reason), maxReason)]
	return fmt.Sprintf("break %d %d %s", key, token, strings.ToValidUTF8(reason, ""))
}

// hear reads a notification. It must not block.
func (e *Engine) hear(_, payload string) {
	verb, rest, _ := strings.Cut(payload, " ")
	first, rest, _ := strings.Cut(rest, " ")
	key, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return // somebody else's notification
	}
	switch verb {
	case "free":
		e.ring(key)
	case "break":
		second, reason, _ := strings.Cut(rest, " ")
		if token, err := strconv.ParseInt(second, 10, 64); err == nil {
			go e.broken(key, token, reason) // ends when the server has answered or the connection has ended
		}
	}
}

// errBroken is why a grant comes to nothing whose token is older than a break that was
// heard of before it came; the request asks once more.
var errBroken = errors.New("the lock was broken just when it was granted")

// broken lets go of the holds of key that are older than token.
func (e *Engine) broken(key, token int64, reason string) {
	e.mu.Lock()
	if t := e.turns[key]; t != nil {
		t.broken = max(t.broken, token)
	}
	var gone []*hold
	for _, h := range e.holds {
		if h.key == key && h.token < token {
			h.broken = true
			e.drop(h)
			gone = append(gone, h)
		}
	}
	e.mu.Unlock()
	for _, h := range gone {
		h.tell(fmt.Errorf("%w: %q was broken: %s", driver.ErrLost, h.name, reason))
		_ = e.free(h) // a session that cannot let go is not used again
	}
}
