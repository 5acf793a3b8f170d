package pglock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// enter waits until it is this request's turn in this process.
func (a *attempt) enter(ctx context.Context) error {
	a.local = &localRequest{mode: a.req.Mode, try: !a.req.Wait, ready: make(chan struct{})}
	a.queues.change(a.key, func(t *localQueue) { t.join(a.local) })
	if retry.Nap(ctx, a.listDelay(), a.local.ready) && !closed(a.local.ready) {
		a.waitsHere(ctx)
	}
	select {
	case <-a.local.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if a.local.refused {
		return errHeld
	}
	return nil
}

// listDelay is how long a request waits in this process before it is listed among the waiters.
const listDelay = 20 * time.Millisecond

// listDelay returns how long the request waits before it is listed. It is 0 if the caller has
// OnWait.
func (a *attempt) listDelay() time.Duration {
	if a.req.OnWait != nil || !a.req.Wait {
		return 0
	}
	return listDelay
}

const listSQL = `INSERT INTO fencelock.queued
SELECT x->>'owner', $1::bigint, x->>'name', NULL, (x->>'shared')::boolean, $2::integer, clock_timestamp(),
	x->>'host', (x->>'pid')::integer, x->>'note', (x->>'limit')::integer, (x->>'weight')::integer
FROM CAST($3::text AS jsonb) x ON CONFLICT DO NOTHING`

// waitsHere lists a request that waits only in this process, and calls OnWait.
func (a *attempt) waitsHere(ctx context.Context) {
	if !a.req.Wait {
		return
	}
	own, err := a.own.get(ctx)
	if err == nil {
		a.listed = true
		fields := object(map[string]any{"owner": a.owner, "name": a.req.Name, "shared": a.req.Mode == driver.Shared,
			"host": a.req.Host, "pid": a.req.PID, "note": a.req.Note, "limit": a.req.Limit, "weight": a.req.Units()})
		_, err = own.Query(listSQL, a.key, own.id, string(fields)).Wait(ctx)
	}
	if err != nil { // the wait itself does not need the row, and the caller need not wait for its removal
		if a.listed {
			a.unlist(true)
			a.listed = false
		}
		a.waited.Unavailable(ctx, failure(err))
		if ctx.Err() != nil {
			return // the server has not answered
		}
	}
	a.joined(ctx, 0)
}

// unlist removes the request's row from fencelock.queued. If the request was not granted, it first
// tries to do so before it returns; otherwise, or if that fails, it continues in the background.
func (a *attempt) unlist(granted bool) {
	owner := a.owner // a retry changes it
	remove := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), factsLimit)
		defer cancel()
		_, err := a.own.ask(ctx, `DELETE FROM fencelock.queued WHERE owner = $1::text AND ticket IS NULL`, owner)
		return err
	}
	if !granted && remove() == nil {
		return
	}
	go func() { // ends when the row is gone, or the engine is closed
		pause := retry.NewBackoff(firstRepair, lastRepair)
		for err := remove(); err != nil && passing(err); err = remove() {
			if !pause.Wait(a.closed) {
				return
			}
		}
	}()
}

// joined records that the engine answered, and calls OnWait.
func (a *attempt) joined(ctx context.Context, position int) {
	held := &driver.HeldError{Name: a.req.Name}
	if a.req.OnWait != nil {
		var err error
		if held, err = a.whoIsIn(context.WithoutCancel(ctx)); err != nil {
			a.waited.Unavailable(ctx, failure(err))
		}
	}
	if _, trouble := a.waited.Last(); trouble == nil {
		a.waited.Held(held)
	}
	if a.req.OnWait != nil && !a.informed {
		a.informed = true
		a.req.OnWait(driver.WaitInfo{Position: position, Held: held})
	}
}

// factsLimit bounds the queries about the current holder.
const factsLimit = time.Second

const whoSQL = `SELECT owner, host, pid, note, (extract(epoch FROM since) * 1000000)::bigint,
	(extract(epoch FROM greatest(` + renewedSQL + ` + ttl * interval '1 ms', (SELECT not_before FROM fencelock.minimum WHERE key = $1::bigint))) * 1000000)::bigint
FROM (
	SELECT owner, host, pid, note, since, ttl, token, session, seen FROM fencelock.held WHERE key = $1::bigint AND owner IS NOT NULL
	UNION ALL SELECT owner, host, pid, note, since, ttl, token, session, seen FROM fencelock.sharer WHERE key = $1::bigint
) h LEFT JOIN fencelock.beat b ON b.session = h.session
ORDER BY token LIMIT 1`

const minimumSQL = `SELECT (extract(epoch FROM not_before) * 1000000)::bigint
FROM fencelock.minimum WHERE key = $1::bigint AND not_before > clock_timestamp()`

// whoIsIn returns the holder, or until when a minimum hold closes the name, as far as the server
// answers within factsLimit. The result is never nil.
func (a *attempt) whoIsIn(asked context.Context) (*driver.HeldError, error) {
	ctx, cancel := context.WithTimeout(asked, factsLimit)
	defer cancel()
	held := &driver.HeldError{Name: a.req.Name}
	rows, err := a.own.ask(ctx, whoSQL, a.key)
	if err != nil {
		return held, unanswered(asked, ctx, err)
	}
	if len(rows) == 1 {
		r := rows[0]
		held.Owner, held.Since, held.Until = r.Text(0), r.Micros(4), r.Micros(5)
		held.Identity = readIdentity(r, 1)
		return held, nil
	}
	if rows, err := a.own.ask(ctx, minimumSQL, a.key); err == nil && len(rows) == 1 {
		held.Until = rows[0].Micros(0)
		return held, nil
	}
	all, err := a.own.serverLocks(ctx, a.key)
	if err != nil {
		return held, unanswered(asked, ctx, err)
	}
	for _, l := range all {
		if l.granted && !l.ours {
			held.Identity, held.Since = l.identity(), l.since
			break
		}
	}
	return held, nil
}
