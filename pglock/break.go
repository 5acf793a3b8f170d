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
	"github.com/fencelock/fencelock/pglock/internal/pipe"
)

// breaker ends holds of others, and hears of those who end holds of this process.
type breaker struct {
	own   *ownSession
	turns *turns
	holds *holdings
	wait  time.Duration // Config.BreakWait
	force bool          // Config.ForceBreak
}

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

// Break ends every acquisition of a name; see [Engine.Break].
func (b *breaker) Break(ctx context.Context, name, reason string) (int64, error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	key := keyOf(name)
	before, err := b.holders(ctx, key)
	switch {
	case err != nil:
		return 0, failure(err)
	}
	closed, err := b.own.ask(ctx, minimumSQL, key)
	switch {
	case err != nil:
		return 0, failure(err)
	case len(before)+len(closed) == 0:
		return 0, notHeld(name)
	}
	own, token, err := b.mint(ctx)
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
	return token, b.finish(ctx, own, key, token, before)
}

// mint returns a new token, and the engine's own session.
func (b *breaker) mint(ctx context.Context) (*session, int64, error) {
	own, err := b.own.get(ctx)
	if err != nil {
		return nil, 0, err
	}
	rows, err := own.Query(`SELECT nextval('fencelock.token')`).Wait(ctx)
	if err != nil {
		return nil, 0, err
	}
	return own, rows[0].Int(0), nil
}

// holders returns the server processes that hold a key, 0 for one that is gone.
func (b *breaker) holders(ctx context.Context, key int64) ([]int64, error) {
	locks, err := b.own.serverLocks(ctx, key)
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
	rows, err := b.own.ask(ctx, whoSQL, key)
	if err == nil && len(rows) > 0 {
		all = append(all, 0)
	}
	return all, err
}

// finish waits until the holders have let go, and ends their connections if they
// do not and the engine may.
func (b *breaker) finish(ctx context.Context, own *session, key, token int64, before []int64) error {
	left, err := b.letGoBy(ctx, own, key, token, before)
	if err != nil || len(left) == 0 {
		return err
	}
	if slices.Contains(left, 0) {
		return failure(errors.New("a prepared transaction has not let go of the lock; find it in pg_prepared_xacts, and end it with COMMIT PREPARED or ROLLBACK PREPARED"))
	}
	if !b.force {
		return failure(fmt.Errorf("server process %s has not let go of the lock; end it with pg_terminate_backend, which frees its other locks as well, or set ForceBreak",
			strings.Trim(array(left), "{}")))
	}
	if _, err := b.own.ask(ctx, terminateSQL, key, array(left)); err != nil {
		return failure(err)
	}
	left, err = b.letGoBy(ctx, own, key, token, left)
	if err == nil && len(left) > 0 {
		err = failure(errors.New("the server was told to end the holder's connection and has not"))
	}
	return err
}

// laterSQL shows the server processes that have let go of all holds of a key from before a token,
// and hold it anew: requests of one process may have its lock one after the other on one session.
var laterSQL = numbers.Replace(`SELECT s.pid FROM (
	SELECT session, token FROM fencelock.held WHERE key = $1::bigint AND owner IS NOT NULL
	UNION ALL SELECT session, token FROM fencelock.sharer WHERE key = $1::bigint
) h JOIN ` + sessionLocks + ` s ON s.id = h.session GROUP BY s.pid HAVING min(h.token) > $2::bigint`)

// letGoBy waits up to BreakWait until none of some server processes holds key, and
// returns those that still do. It then forgets holders that were broken.
func (b *breaker) letGoBy(ctx context.Context, own *session, key, token int64, from []int64) ([]int64, error) {
	end := time.Now().Add(b.wait)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		locks, err := b.own.serverLocks(ctx, key)
		if err != nil {
			return nil, failure(err)
		}
		var left []int64
		for _, l := range locks {
			if l.granted && slices.Contains(from, int64(l.backend)) {
				left = append(left, int64(l.backend))
			}
		}
		if len(left) > 0 {
			later, err := own.Query(laterSQL, key, token).Wait(ctx)
			if err != nil {
				return nil, failure(err)
			}
			left = slices.DeleteFunc(left, func(backend int64) bool {
				return slices.ContainsFunc(later, func(r pipe.Row) bool { return r.Int(0) == backend })
			})
		}
		if len(left) == 0 {
			if _, err := own.Query(vanishedSQL, key, token, own.id).Wait(ctx); err != nil {
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
	reason = plain(reason)
	reason = reason[:min(len(reason), maxReason)]
	return fmt.Sprintf("break %d %d %s", key, token, strings.ToValidUTF8(reason, ""))
}

// ownedSQL shows the rows of a key's holders: whose they are, and of which live process of
// the server, 0 if of none.
var ownedSQL = numbers.Replace(`SELECT h.owner, coalesce(s.pid, 0) FROM (
	SELECT owner, session FROM fencelock.held WHERE key = $1::bigint AND owner IS NOT NULL
	UNION ALL SELECT owner, session FROM fencelock.sharer WHERE key = $1::bigint
) h LEFT JOIN ` + sessionLocks + ` s ON s.id = h.session`)

// tellAgain is after how long a holder that has not let go is told once more: it may not
// have had the answer to its request yet when it was told.
const tellAgain = 100 * time.Millisecond

// BreakOwner is Break for one acquisition; see [Engine.BreakOwner].
func (b *breaker) BreakOwner(ctx context.Context, name, owner, reason string) (int64, error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	key := keyOf(name)
	own, token, err := b.mint(ctx) // before the holder is seen, so that who comes after it has a greater one
	if err != nil {
		return 0, failure(err)
	}
	closed, err := b.own.ask(ctx, minimumSQL, key) // likewise: not that of who comes after it
	if err != nil {
		return 0, failure(err)
	}
	backend, others, err := b.owned(ctx, key, owner)
	if err != nil {
		return 0, failure(err)
	}
	if backend < 0 {
		return 0, notHeld(name)
	}
	if len(closed) > 0 && !others {
		if _, err := own.Query(reopenSQL, key, closed[0].Int(0)).Wait(ctx); err != nil {
			return token, failure(err)
		}
	}
	err = b.endOwner(ctx, own, key, owner, reason)
	if errors.Is(err, errKept) && b.force {
		err = b.cutOwner(ctx, key, owner)
		if err == nil {
			err = b.endOwner(ctx, own, key, owner, reason)
		}
	}
	if err != nil {
		return token, failure(err)
	}
	return token, nil
}

// cutOwner ends the connection of an owner that still holds a key.
func (b *breaker) cutOwner(ctx context.Context, key int64, owner string) error {
	backend, _, err := b.owned(ctx, key, owner)
	if err == nil && backend > 0 {
		_, err = b.own.ask(ctx, terminateSQL, key, array([]int64{backend}))
	}
	return err
}

// owned returns the server's process of an owner that holds a key: 0 if it is not
// connected any more, -1 if it does not hold it; and whether others do.
func (b *breaker) owned(ctx context.Context, key int64, owner string) (backend int64, others bool, err error) {
	rows, err := b.own.ask(ctx, ownedSQL, key)
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
func (b *breaker) endOwner(ctx context.Context, own *session, key int64, owner, reason string) error {
	told, end := time.Time{}, time.Now().Add(b.wait)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		backend, _, err := b.owned(ctx, key, owner)
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
	reason = plain(reason)
	reason = reason[:min(len(reason), maxReason)]
	return fmt.Sprintf("break-owner %d %s %s", key, owner, strings.ToValidUTF8(reason, ""))
}

// hear reads a notification. It must not block.
func (b *breaker) hear(payload string) {
	verb, rest, _ := strings.Cut(payload, " ")
	first, rest, _ := strings.Cut(rest, " ")
	second, reason, _ := strings.Cut(rest, " ")
	key, err := strconv.ParseInt(first, 10, 64)
	token, wrong := strconv.ParseInt(second, 10, 64)
	switch {
	case err != nil: // it is somebody else's notification
	case verb == "break" && wrong == nil:
		go b.broken(key, token, reason) // ends when the server has answered or the connection has ended
	case verb == "break-owner":
		go b.brokenOwner(key, second, reason) // likewise
	}
}

// broken lets go of the holds of key that are older than token.
func (b *breaker) broken(key, token int64, reason string) {
	b.turns.change(key, func(t *turn) { t.broken = max(t.broken, token) })
	for _, h := range b.holds.older(key, token) {
		b.letGo(h, reason)
	}
}

// brokenOwner lets go of the hold of owner.
func (b *breaker) brokenOwner(key int64, owner, reason string) {
	if h := b.holds.dropOwner(key, owner); h != nil {
		b.letGo(h, reason)
	}
}

// older drops and returns the holds of key that are older than token.
func (m *holdings) older(key, token int64) []*hold {
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

// dropOwner drops and returns the hold of an owner on key, nil if there is none.
func (m *holdings) dropOwner(key int64, owner string) *hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.byOwner[owner]; h != nil && h.key == key && m.dropLocked(h) {
		return h
	}
	return nil
}

// letGo gives up a hold that was dropped, since somebody broke it.
func (b *breaker) letGo(h *hold, reason string) {
	h.tell(fmt.Errorf("%w: %q was broken: %s", driver.ErrLost, h.name, reason))
	_ = b.holds.release(context.Background(), h) // a session that cannot let go has ended
}
