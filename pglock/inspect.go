package pglock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/jackc/pgx/v5/pgconn"
)

var _ driver.Inspector = (*Engine)(nil)

// inspection is one Inspect and what it has learned.
type inspection struct {
	engine  *Engine
	conn    *pgconn.PgConn
	ttl     time.Duration
	facts   pipe.Row
	backend uint32 // that was told at connect
	took    []time.Duration
	ahead   time.Duration // the server's clock, of ours
	doubt   time.Duration
}

// Inspect looks for what in the server, its settings, the role's rights and what
// lies in between weakens the promises of locks with the given TTL. It opens one
// connection and changes nothing. The error is for a server that cannot be asked.
func (e *Engine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	c, err := e.connect(ctx)
	if err != nil {
		return nil, failure(err)
	}
	defer c.Close(ctx)
	in := &inspection{engine: e, conn: c, ttl: ttl, backend: c.PID()}
	if err := in.ask(ctx); err != nil {
		return nil, failure(err)
	}
	return []driver.Finding{
		in.version(), in.role(), in.pooler(), in.names(), in.schema(),
		in.lease(ctx), in.commits(ctx), in.durability(),
		in.connections(), in.lockTable(), in.clock(), in.latency(),
	}, nil
}

// The columns of inspectSQL.
const (
	colBackend = iota
	colVersionNum
	colVersion
	colStandby
	colHash
	colFsync
	colFullPages
	colSlots
	colSlotsUsed
	colConns
	colConnsFree
	colSchema
	colMayCreate
	colUser
)

const inspectSQL = `SELECT pg_backend_pid(), current_setting('server_version_num'), current_setting('server_version'),
	pg_is_in_recovery(), hashtextextended($1::text, 0), current_setting('fsync'), current_setting('full_page_writes'),
	current_setting('max_locks_per_transaction')::bigint *
		(current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint),
	(SELECT count(*) FROM pg_locks WHERE NOT fastpath),
	current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint,
	current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint -
		(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
	to_regproc('fencelock.ready') IS NOT NULL, has_database_privilege(current_database(), 'CREATE'), current_user`

const clockSQL = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// pings is how many round trips are measured.
const pings = 20

// ask puts the questions that need no right, and measures how long answers take.
func (in *inspection) ask(ctx context.Context) error {
	r, err := one(in.conn.ExecParams(ctx, inspectSQL, [][]byte{[]byte(probe)}, nil, nil, nil).Read())
	if err != nil {
		return err
	}
	in.facts = r
	for range pings {
		begun := time.Now()
		r, err := one(in.conn.ExecParams(ctx, clockSQL, nil, nil, nil, nil).Read())
		if err != nil {
			return err
		}
		took := time.Since(begun)
		in.took = append(in.took, took)
		// The answer was made somewhere between question and answer.
		if in.doubt == 0 || took/2 < in.doubt {
			in.doubt = took / 2
			in.ahead = r.Micros(0).Sub(begun.Add(in.doubt))
		}
	}
	return nil
}

// good is a finding of nothing to worry about.
func good(check, saw string) driver.Finding { return driver.Finding{Check: check, Observed: saw} }

// bad is a finding that says what it means and what to do.
func bad(check string, how driver.Severity, saw, means, do string) driver.Finding {
	return driver.Finding{Check: check, Severity: how, Observed: saw, Impact: means, Fix: do}
}
