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
	"github.com/fencelock/fencelock/internal/retry"
)

// vanishedSQL frees the rows of holders that were broken and are not connected any more.
const vanishedSQL = `WITH s AS (DELETE FROM fencelock.sharer WHERE key = $1::bigint AND token < $2::bigint AND NOT fencelock.live(session, $3::integer))
UPDATE fencelock.held SET owner = NULL WHERE key = $1::bigint AND token < $2::bigint AND owner IS NOT NULL AND NOT fencelock.live(session, $3::integer)`

// reopenSQL ends a minimum hold, unless it has become a longer one.
const reopenSQL = `DELETE FROM fencelock.minimum
WHERE key = $1::bigint AND (extract(epoch FROM not_before) * 1000000)::bigint <= $2::bigint`

const terminateSQL = `SELECT count(*) FROM (SELECT pg_terminate_backend(l.pid)
	FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
	WHERE ` + lockRows + ` AND ` + lockKey + ` = $1::bigint AND l.granted AND l.pid = ANY (CAST($2::text AS integer[]))) x`

// maxReason is the longest reason that is passed on, in bytes.
const maxReason = 500

// Break ends every acquisition of name and its minimum hold, and returns a token that shuts the holders
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
	before, err := e.holders(ctx, key)
	switch {
	case err != nil:
		return 0, failure(err)
	}
	closed, err := e.ask(ctx, minimumSQL, key)
	switch {
	case err != nil:
		return 0, failure(err)
	case len(before)+len(closed) == 0:
		return 0, notHeld(name)
	}
	own, token, err := e.mint(ctx)
	if err != nil {
		return 0, failure(err)
	}
	if len(closed) > 0 {
		if _, err := own.Query(reopenSQL, key, closed[0].Int(0)).Wait(ctx); err != nil {
			return token, failure(err)
		}
	}
	if _, err := own.Query("SELECT pg_notify('fencelock', $1::text)", broken(key, token, reason)).Wait(ctx); err != nil {
		return token, failure(err)
	}
	return token, e.finish(ctx, own, key, token, before)
}

// mint returns a new token, and the engine's own session.
func (e *Engine) mint(ctx context.Context) (*session, int64, error) {
	own, err := e.own.get(ctx)
	if err != nil {
		return nil, 0, err
	}
	rows, err := own.Query(`SELECT nextval('fencelock.token')`).Wait(ctx)
	if err != nil {
		return nil, 0, err
	}
	return own, own.epoch<<40 + rows[0].Int(0), nil
}

// holders returns the server processes that hold a key, 0 for one that is gone.
func (e *Engine) holders(ctx context.Context, key int64) ([]int64, error) {
	locks, err := e.serverLocks(ctx, key)
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
	rows, err := e.ask(ctx, whoSQL, key)
	if err == nil && len(rows) > 0 {
		all = append(all, 0)
	}
	return all, err
}

// finish waits until the holders have let go, and ends their connections if they
// do not and the engine may.
func (e *Engine) finish(ctx context.Context, own *session, key, token int64, before []int64) error {
	left, err := e.letGoBy(ctx, own, key, token, before)
	if err != nil || len(left) == 0 {
		return err
	}
	if !e.cfg.ForceBreak {
		return failure(fmt.Errorf("server process %s has not let go of the lock; end it with pg_terminate_backend, which frees its other locks as well, or set ForceBreak",
			strings.Trim(array(left), "{}")))
	}
	if _, err := e.ask(ctx, terminateSQL, key, array(left)); err != nil {
		return failure(err)
	}
	left, err = e.letGoBy(ctx, own, key, token, left)
	if err == nil && len(left) > 0 {
		err = failure(errors.New("the server was told to end the holder's connection and has not"))
	}
	return err
}

// letGoBy waits up to BreakWait until none of some server processes holds key, and
// returns those that still do. It then forgets holders that were broken.
func (e *Engine) letGoBy(ctx context.Context, own *session, key, token int64, from []int64) ([]int64, error) {
	end := time.Now().Add(e.cfg.BreakWait)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		locks, err := e.serverLocks(ctx, key)
		if err != nil {
			return nil, failure(err)
		}
		var left []int64
		for _, l := range locks {
			if l.granted && slices.Contains(from, int64(l.backend)) && !e.holdsSince(key, token, l.backend) {
				left = append(left, int64(l.backend))
			}
		}
		if len(left) == 0 {
			if _, err := own.Query(vanishedSQL, key, token-own.epoch<<40, own.id).Wait(ctx); err != nil {
				return nil, failure(err)
			}
			return nil, nil
		}
		if time.Now().After(end) {
			return left, nil
		}
		if !retry.Sleep(ctx, pause) {
			return left, failure(ctx.Err())
		}
	}
}

// holdsSince reports whether this process took the key again, after the break.
func (e *Engine) holdsSince(key, token int64, backend int32) bool {
	e.holds.mu.Lock()
	defer e.holds.mu.Unlock()
	for _, h := range e.holds.byOwner {
		if h.key == key && h.token > token && h.session.backend == backend {
			return true
		}
	}
	return false
}

// array writes an array as the server reads it.
func array(keys []int64) string {
	b := []byte{'{'}
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Append(b, k)
	}
	return string(append(b, '}'))
}

// broken is the notification that every hold of key before token is broken.
func broken(key, token int64, reason string) string {
	reason = reason[:min(len(reason), maxReason)]
	return fmt.Sprintf("break %d %d %s", key, token, strings.ToValidUTF8(reason, ""))
}

// hear reads a notification. It must not block.
func (e *Engine) hear(payload string) {
	verb, rest, _ := strings.Cut(payload, " ")
	first, rest, _ := strings.Cut(rest, " ")
	second, reason, _ := strings.Cut(rest, " ")
	key, err := strconv.ParseInt(first, 10, 64)
	token, wrong := strconv.ParseInt(second, 10, 64)
	switch {
	case err != nil: // it is somebody else's notification
	case verb == "break" && wrong == nil:
		go e.broken(key, token, reason) // ends when the server has answered or the connection has ended
	case verb == "break-owner":
		go e.brokenOwner(key, second, reason) // likewise
	}
}

// broken lets go of the holds of key that are older than token.
func (e *Engine) broken(key, token int64, reason string) {
	e.turns.change(key, func(t *turn) { t.broken = max(t.broken, token) })
	for _, h := range e.holds.before(key, token) {
		h.tell(fmt.Errorf("%w: %q was broken: %s", driver.ErrLost, h.name, reason))
		_ = e.release(context.Background(), h) // a session that cannot let go has ended
	}
}

// before drops and returns the holds of key that are older than token.
func (m *holdings) before(key, token int64) []*hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	var gone []*hold
	for _, h := range m.byOwner {
		if h.key == key && h.token < token && m.dropLocked(h) {
			gone = append(gone, h)
		}
	}
	return gone
}
