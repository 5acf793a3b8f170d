package pglock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// enter waits until no other request of this process is before this one.
func (a *attempt) enter(ctx context.Context) error {
	a.place = &place{mode: a.req.Mode, try: !a.req.Wait, ready: make(chan struct{})}
	a.turns.change(a.key, func(t *turn) { t.join(a.place) })
	if retry.Nap(ctx, a.listDelay(), a.place.ready) && !closed(a.place.ready) {
		a.waitsHere(ctx)
	}
	select {
	case <-a.place.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if a.place.refused {
		return errHeld
	}
	return nil
}

// listDelay is after which time a request that waits in this process is written down for
// others to see.
const listDelay = 20 * time.Millisecond

// listDelay is at once if somebody wants to know when that has happened.
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

// waitsHere writes a request down that waits in this process only, and tells whoever wants
// to know.
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
	if err != nil { // the wait itself needs no row
		a.heard.Unavailable(ctx, failure(err))
		if ctx.Err() != nil {
			return // the server has not answered
		}
	}
	a.joined(ctx, 0)
}

// unlist takes the request off the list of waiters; when it was not granted, it
// returns when nobody can see it there any more, or when that must be tried again.
func (a *attempt) unlist(granted bool) {
	owner := a.owner // of now
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
			_ = pause.Wait(context.Background())
		}
	}()
}

// joined notes that the engine answered, and tells whoever wants to know that the request
// waits.
func (a *attempt) joined(ctx context.Context, position int) {
	held := &driver.HeldError{Name: a.req.Name}
	if a.req.OnWait != nil {
		var err error
		if held, err = a.whoIsIn(ctx); err != nil {
			a.heard.Unavailable(ctx, failure(err))
		}
	}
	if _, trouble := a.heard.Last(); trouble == nil {
		a.heard.Held(held)
	}
	if a.req.OnWait != nil && !a.told {
		a.told = true
		a.req.OnWait(driver.WaitInfo{Position: position, Held: held})
	}
}

// factsLimit bounds the questions about who is in the way.
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

// whoIsIn says who is in the way, or until when the name is closed, as far as the server
// knows within a moment. The answer is never nil.
func (a *attempt) whoIsIn(ctx context.Context) (*driver.HeldError, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), factsLimit)
	defer cancel()
	held := &driver.HeldError{Name: a.req.Name}
	rows, err := a.own.ask(ctx, whoSQL, a.key)
	if err != nil {
		return held, err
	}
	if len(rows) == 1 {
		r := rows[0]
		held.Owner, held.Since, held.Until = r.Text(0), r.Micros(4), r.Micros(5)
		held.Identity = identity(r, 1)
		return held, nil
	}
	if rows, err := a.own.ask(ctx, minimumSQL, a.key); err == nil && len(rows) == 1 {
		held.Until = rows[0].Micros(0)
		return held, nil
	}
	all, err := a.own.serverLocks(ctx, a.key)
	if err != nil {
		return held, err
	}
	for _, l := range all {
		if l.granted && !l.ours {
			held.Identity, held.Since = l.identity(), l.since
			break
		}
	}
	return held, nil
}
