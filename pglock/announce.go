package pglock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var (
	stmtEnlist = &statement{"enlist", `WITH w AS (
	INSERT INTO fencelock.waiter
	SELECT x->>'owner', $1::bigint, x->>'name', (x->>'shared')::boolean, clock_timestamp(), $2::integer, $3::integer,
		x->>'host', (x->>'pid')::integer, x->>'note', (x->>'seats')::integer, (x->>'weight')::integer
	FROM CAST($4::text AS jsonb) x
	ON CONFLICT (owner) DO UPDATE SET backend = excluded.backend)
SELECT cardinality(b), (SELECT count(*) FROM fencelock.holder h JOIN fencelock.session s ON s.id = h.session
	WHERE h.key = $1::bigint AND s.backend = ANY (b))
FROM (SELECT pg_blocking_pids($3::integer) AS b) x`}
	stmtUnlist = &statement{"unlist", `DELETE FROM fencelock.waiter WHERE owner = $1::text`}
)

// announce tells whoever wants to know that the request waits: in this process, on
// session s but for no lock, or in the server with call c on s, once it is in the
// server's queue. It returns early if the wait is over.
func (a *attempt) announce(ctx context.Context, s *session, c *call) {
	if a.req.Waiting == nil {
		return
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		info, joined := a.enlistWaiter(ctx, s, c != nil)
		if c != nil && c.over(ctx, 0) {
			return
		}
		if joined {
			a.held, a.told = info.Held, true
			a.req.Waiting(info)
			return
		}
		if c.over(ctx, pause) {
			return
		}
	}
}

// over waits for the answer for d and reports whether it is there, or ctx ended.
func (c *call) over(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		_, _ = c.wait(ctx) // the answer stays with the call
	}
	return c.answered() || ctx.Err() != nil
}

// enlistWaiter writes the request down as a waiter and reports whether it waits; if
// in the server, the server says.
func (a *attempt) enlistWaiter(ctx context.Context, s *session, inServer bool) (driver.WaitInfo, bool) {
	backend := int32(0)
	if s != nil {
		backend = s.backend
	}
	own, err := a.ownSession(ctx)
	if err != nil {
		return driver.WaitInfo{}, !inServer // the wait itself needs no notes
	}
	a.listed = true
	rows, err := own.run(ctx, stmtEnlist, a.key, own.id, backend, object(map[string]any{
		"owner": a.owner, "name": a.req.Name, "shared": a.req.Mode == driver.Shared,
		"host": a.req.Host, "pid": a.req.PID, "note": a.req.Note, "seats": a.req.Limit, "weight": a.req.Units()}))
	if err != nil || len(rows) == 0 {
		return driver.WaitInfo{}, !inServer
	}
	info := driver.WaitInfo{Held: a.whoNoted(ctx)}
	if inServer && rows[0].int(0) > 0 {
		info.Position = max(1, int(rows[0].int(0)-rows[0].int(1)+1))
	}
	return info, !inServer || rows[0].int(0) > 0
}

// unlist takes the request off the list of waiters; when it was not granted, it
// returns when nobody can see it there any more.
func (a *attempt) unlist(granted bool) {
	if !a.listed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cancelLimit)
	defer cancel()
	own, err := a.ownSession(ctx)
	if err != nil {
		return // a row of a session that is gone is ignored
	}
	c := own.send(stmtUnlist, a.owner)
	if !granted {
		_, _ = c.wait(ctx) // as above
	}
}
