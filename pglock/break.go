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

// breaker ends the locks of other processes, and handles notifications that end locks of this one.
type breaker struct {
	own      *ownSession
	holds    *holdings
	sleepers *sleepers
	wait     time.Duration // Config.BreakWait
	force    bool          // Config.ForceBreak
}

// reopenSQL deletes a minimum hold, unless it was extended meanwhile.
const reopenSQL = `DELETE FROM fencelock.minimum
WHERE key = $1::bigint AND (extract(epoch FROM not_before) * 1000000)::bigint <= $2::bigint`

const terminateSQL = `SELECT count(*) FROM (SELECT pg_terminate_backend(l.pid)
	FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
	WHERE ` + lockRows + ` AND ` + lockKey + ` = $1::bigint AND l.granted AND l.pid = ANY (CAST($2::text AS integer[]))) x`

// maxReason is the longest reason that is passed on, in bytes.
const maxReason = 500

// breaking is one call of Break or BreakOwner.
type breaking struct {
	*breaker
	key    int64
	owner  string // whose acquisition ends; all if empty
	token  int64  // the token of the break
	reason string
}

// heldBy is a holder of a key: an owner with a row, or a server process without one.
type heldBy struct {
	owner   string // empty if it has no row
	backend int64  // 0 if the owner is not connected any more, and for a prepared transaction
	token   int64
	over    bool // it vanished, and its lease is over
}

// Break ends every acquisition of a name; see [Engine.Break].
func (b *breaker) Break(ctx context.Context, name, reason string) (int64, error) {
	return b.end(ctx, name, "", reason)
}

// BreakOwner is Break for one acquisition; see [Engine.BreakOwner].
func (b *breaker) BreakOwner(ctx context.Context, name, owner, reason string) (int64, error) {
	if owner == "" {
		return 0, notHeld(name)
	}
	return b.end(ctx, name, owner, reason)
}

// end breaks the acquisition of one owner, or all if owner is empty.
func (b *breaker) end(ctx context.Context, name, owner, reason string) (int64, error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	k := &breaking{breaker: b, key: keyOf(name), owner: owner, reason: reason}
	// Draw the token before reading the holders, so that later holders have a greater one. Read the
	// minimum hold before them too: one read later might belong to a successor.
	rows, err := b.own.ask(ctx, `SELECT nextval('fencelock.token')`)
	if err != nil {
		return 0, failure(err)
	}
	k.token = rows[0].Int(0)
	closed, err := b.own.ask(ctx, minimumSQL, k.key)
	if err != nil {
		return 0, failure(err)
	}
	all, err := k.holders(ctx)
	if err != nil {
		return 0, failure(err)
	}
	others := len(slices.DeleteFunc(slices.Clone(all), k.chosen))
	lapsed := slices.ContainsFunc(all, func(h heldBy) bool { return h.over && h.owner == owner })
	if lapsed && owner != "" || others == len(all) && (owner != "" || len(closed) == 0) {
		return 0, notHeld(name)
	}
	if len(closed) > 0 && others == 0 {
		_, err = b.own.ask(ctx, reopenSQL, k.key, closed[0].Int(0))
	}
	if err == nil {
		err = k.finish(ctx)
	}
	return k.token, failure(err)
}

// chosen reports whether the break ends this holder.
func (k *breaking) chosen(h heldBy) bool {
	if k.owner != "" {
		return h.owner == k.owner
	}
	return h.token < k.token
}

// heldSQL lists the holders of a key: owners with a row, and server processes without one.
var heldSQL = numbers.Replace(`WITH h AS (
	SELECT h.owner, h.token, s.pid, NOT ` + listedSQL + ` AS over FROM (
		SELECT owner, token, session, since, ttl, seen FROM fencelock.held WHERE key = $1::bigint AND owner IS NOT NULL
		UNION ALL SELECT owner, token, session, since, ttl, seen FROM fencelock.sharer WHERE key = $1::bigint
	) h LEFT JOIN ` + sessionLocks + ` s ON s.id = h.session LEFT JOIN fencelock.beat b ON b.session = h.session)
SELECT owner, pid, token, over FROM h UNION ALL SELECT '', l.pid, 0, false FROM pg_locks l
WHERE ` + lockRows + ` AND ` + lockKey + ` = $1::bigint AND l.granted AND NOT EXISTS (SELECT FROM h WHERE h.pid = l.pid)`)

// holders returns the holders of the key.
func (k *breaking) holders(ctx context.Context) ([]heldBy, error) {
	rows, err := k.own.ask(ctx, heldSQL, k.key)
	all := make([]heldBy, len(rows))
	for i, r := range rows {
		all[i] = heldBy{r.Text(0), r.Int(1), r.Int(2), r.Text(3) == "t"}
	}
	return all, err
}

// finish waits until the holders have released the lock. With ForceBreak it terminates the
// connections of those that have not.
func (k *breaking) finish(ctx context.Context) error {
	left, err := k.letGo(ctx)
	if err == nil && len(left) > 0 && k.force {
		if _, err = k.own.ask(ctx, terminateSQL, k.key, array(left)); err == nil {
			left, err = k.letGo(ctx)
		}
	}
	switch {
	case err != nil || len(left) == 0:
		return err
	case slices.Contains(left, 0):
		return errors.New("a prepared transaction still holds the lock; find it in pg_prepared_xacts and end it with COMMIT PREPARED or ROLLBACK PREPARED")
	case k.force:
		return fmt.Errorf("server process %s was terminated but still holds the lock; check the server and break the lock again", strings.Trim(array(left), "{}"))
	}
	return fmt.Errorf("server process %s still holds the lock; end it with pg_terminate_backend, which also ends its other locks, or set ForceBreak",
		strings.Trim(array(left), "{}"))
}

// notifyAgain is how often a holder that has not released the lock is notified. At the first
// notification it may not have received the reply to its own request yet.
const notifyAgain = 100 * time.Millisecond

// letGo notifies the holders and waits up to BreakWait until they have released the lock. It
// returns the server processes that still hold it. It clears the rows of holders that vanished.
func (k *breaking) letGo(ctx context.Context) ([]int64, error) {
	notified, end := time.Time{}, time.Now().Add(k.wait)
	var rowless []int64 // processes without a row in every round so far; others may only be taking or releasing the lock
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		all, err := k.holders(ctx)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(h heldBy) bool {
			return !k.chosen(h) || h.owner == "" && !notified.IsZero() && !slices.Contains(rowless, h.backend)
		})
		notify := time.Since(notified) > notifyAgain
		if notify {
			notified = time.Now()
		}
		var left []int64
		rowless = nil
		for _, h := range all {
			switch {
			case h.owner == "":
				rowless = append(rowless, h.backend)
			case h.backend == 0:
				_, err = k.own.ask(ctx, forgetSQL, k.key, h.owner)
			case notify:
				_, err = k.own.ask(ctx, "SELECT pg_notify('fencelock', $1::text)", k.notice(h.owner))
			}
			if err != nil {
				return nil, err
			}
			if h.owner == "" || h.backend > 0 {
				left = append(left, h.backend)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return left, nil
		}
		if !retry.Sleep(ctx, pause) {
			return nil, ctx.Err()
		}
	}
}

// notice returns the notification that the hold of an owner is broken.
func (k *breaking) notice(owner string) string {
	reason := plain(k.reason)
	reason = reason[:min(len(reason), maxReason)]
	return fmt.Sprintf("break %d %s %s", k.key, owner, strings.ToValidUTF8(reason, ""))
}

// onNotification handles a notification. It must not block.
func (b *breaker) onNotification(payload string) {
	f := strings.SplitN(payload, " ", 4)
	switch {
	case len(f) == 4 && f[0] == "break":
		go b.broken(f[1], f[2], f[3]) // ends when the server has answered or the connection has ended
	case len(f) == 2 && f[0] == "free":
		if key, err := strconv.ParseInt(f[1], 10, 64); err == nil {
			b.sleepers.wake(key)
		}
	} // ignore notifications of other programs
}

// broken ends the hold of an owner because another client broke it.
func (b *breaker) broken(key, owner, reason string) {
	b.holds.mu.Lock()
	h := b.holds.byOwner[owner]
	ours := h != nil && strconv.FormatInt(h.key, 10) == key && b.holds.dropLocked(h)
	b.holds.mu.Unlock()
	if ours {
		h.tell(fmt.Errorf("%w: %q was broken: %s", driver.ErrBroken, h.name, reason))
		_ = b.holds.release(context.Background(), h) // if it fails, the session has ended
	}
}

// array formats a PostgreSQL array.
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
