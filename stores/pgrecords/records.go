// Package pgrecords stores records ([driver.Records]) in a table of PostgreSQL, through any pooler.
// Locks in these records work where the advisory locks of package pglock cannot: behind PgBouncer in
// transaction mode, which Supabase, Neon and others offer.
//
//	cfg, err := pgxpool.ParseConfig(url)
//	...
//	pgrecords.NoCancel(cfg)
//	pool, err := pgxpool.NewWithConfig(ctx, cfg)
//	...
//	records := pgrecords.New(pool, nil)
//	if err := records.Init(ctx); err != nil { // creates the table if it does not exist
//		return err
//	}
//	locks := fencelock.New(recordlock.New(records, nil), nil)
//
// Locks in records and those of package pglock do not exclude each other, even in the same database:
// all processes must use the same ones.
//
// Each statement and its arguments are one batch of the wire protocol, which a pooler keeps on one
// connection of the server. So the query mode of the pool does not matter. Nothing is set on a
// connection, and nothing is prepared. The table is that of package sqlrecords: programs with either
// package share its records.
//
// Waiters poll. [Records.Listen] returns records that report their changes.
package pgrecords

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/recordsql"
	"github.com/fencelock/fencelock/internal/retry"
)

// Config holds the settings of Records.
type Config struct {
	// Table is the name of the table: at most 55 letters, digits and underscores, optionally with a
	// schema ("app.records"). Empty means fencelock_record.
	Table string

	// Timeout limits each call, with all its attempts. 0 means 10 seconds. A shorter deadline of the
	// context ends a call earlier.
	Timeout time.Duration
}

// Records stores records in a table. It is safe for concurrent use. It takes connections from the
// pool, for one statement at a time: a caller that holds all of them deadlocks.
type Records struct {
	pool    *pgxpool.Pool
	table   string
	sql     recordsql.Statements
	limit   time.Duration
	invalid error // the error of invalid arguments of New
	swept   retry.Period
}

var _ driver.Records = (*Records)(nil)

// New returns the records in a table. It does no I/O. [Records.Init] creates the table. With an invalid
// table name every call returns an ErrConfig.
//
// The connections of the pool must use READ COMMITTED or a stricter isolation level, which is the
// default of every server.
func New(pool *pgxpool.Pool, cfg *Config) *Records {
	if cfg == nil {
		cfg = &Config{}
	}
	r := &Records{pool: pool, table: cmp.Or(cfg.Table, recordsql.DefaultTable), limit: cmp.Or(cfg.Timeout, 10*time.Second)}
	if r.invalid = recordsql.CheckTable(r.table); r.invalid == nil {
		r.sql = recordsql.Postgres(r.table)
	}
	return r
}

// Schema returns the statements that create the table, for an administrator or the migrations of a
// program; see [Records.Init]. Users of the records need SELECT, INSERT, UPDATE and DELETE on the
// table.
func (r *Records) Schema() []string { return r.sql.Schema }

// Init creates the table if it does not exist.
func (r *Records) Init(ctx context.Context) error { return r.execute(ctx, r.sql.Schema) }

// execute executes statements without arguments.
func (r *Records) execute(ctx context.Context, statements []string) error {
	if r.invalid != nil {
		return r.invalid
	}
	for _, statement := range statements {
		if _, err := r.call(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// Get implements driver.Records.
func (r *Records) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	rows, err := r.call(ctx, r.sql.Get, []byte(key))
	if err != nil {
		return driver.Record{}, err
	}
	rec := driver.Record{Key: key}
	if len(rows.Rows) > 0 {
		rec.Version, rec.Value = string(rows.Rows[0][0]), rows.Rows[0][1]
	}
	return rec, nil
}

// Swap implements driver.Records. It retries after a deadlock or a lock wait timeout, but not after
// an error with an unknown outcome.
func (r *Records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	life := strconv.FormatInt(recordsql.Life(ttl), 10)
	next := rand.Text() // unique even after a restore of the database
	value = append([]byte{}, value...)
	var err error
	if version != "" {
		err = r.change(ctx, r.sql.Update, []byte(next), value, life, []byte(key), []byte(version))
	} else {
		// An expired row is not a record. If no row has expired and none can be inserted, there is a
		// record.
		err = r.change(ctx, r.sql.Revive, []byte(next), value, life, []byte(key))
		if errors.Is(err, driver.ErrConflict) {
			err = r.change(ctx, r.sql.Insert, []byte(key), []byte(next), value, life)
		}
	}
	if err != nil {
		return "", err
	}
	r.sweep(ctx)
	return next, nil
}

// change executes a statement. If it has changed no row, the error is ErrConflict.
func (r *Records) change(ctx context.Context, statement string, args ...any) error {
	result, err := r.call(ctx, statement, args...)
	if err == nil && result.CommandTag.RowsAffected() == 0 {
		return driver.ErrConflict
	}
	return err
}

// sweep deletes rows that expired a while ago, once a minute, or with the next swap if there are
// more. It ignores errors, since it is repeated.
func (r *Records) sweep(ctx context.Context) {
	if !r.swept.Due(time.Minute) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	swept, err := r.call(ctx, r.sql.Sweep)
	if err == nil && swept.CommandTag.RowsAffected() >= recordsql.SweepLimit {
		r.swept.Again()
	}
}

// List implements driver.Records. It reads a range of the table.
func (r *Records) List(ctx context.Context, prefix string) ([]driver.Record, error) {
	result, err := r.call(ctx, r.sql.List, []byte(prefix), recordsql.After(prefix))
	if err != nil {
		return nil, err
	}
	var list []driver.Record
	for _, row := range result.Rows {
		list = append(list, driver.Record{Key: string(row[0]), Version: string(row[1]), Value: row[2]})
	}
	return list, nil
}

// Clock implements driver.Records with the server's clock.
func (r *Records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	result, err := r.call(ctx, r.sql.Clock)
	if err != nil {
		return earliest, latest, err
	}
	now := time.UnixMicro(int64(binary.BigEndian.Uint64(result.Rows[0][0])))
	return now, now, nil
}

// inBinary is the format of bytes in arguments, and of all results.
const inBinary = 1

// call executes a statement. An argument is a []byte, or a string with a number. It repeats a statement
// that the server has refused for a reason that passes.
func (r *Records) call(ctx context.Context, statement string, args ...any) (*pgconn.Result, error) {
	if r.invalid != nil {
		return nil, r.invalid
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	values, formats := make([][]byte, len(args)), make([]int16, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case []byte:
			values[i], formats[i] = arg, inBinary
		case string:
			values[i] = []byte(arg)
		}
	}
	var before error // why the server refused the last attempt
	for pause := retry.NewBackoff(5*time.Millisecond, 200*time.Millisecond); ; {
		result, err := r.once(ctx, statement, values, formats)
		if err == nil {
			return result, nil
		}
		if !recordsql.Passing(code(err)) {
			return nil, failure(before, err)
		}
		if before = err; !pause.Wait(ctx) {
			return nil, failure(before, ctx.Err())
		}
	}
}

// once executes a statement once. If ctx ends before there is an answer, the statement is not interrupted:
// that would end the connection, and a pooler would end one of the server's with it.
func (r *Records) once(ctx context.Context, statement string, values [][]byte, formats []int16) (*pgconn.Result, error) {
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	done := make(chan *pgconn.Result, 1)
	go func() { // ends with the answer, or at the time limit of a call
		defer conn.Release()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.limit)
		defer cancel()
		done <- conn.Conn().PgConn().ExecParams(limited, statement, values, nil, formats, []int16{inBinary}).Read()
	}()
	select {
	case result := <-done:
		return result, result.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// NoCancel changes the configuration of a pool before it is opened: its connections send no cancel requests
// to the server. pgx sends one for each connection that fails or is silent, and PgBouncer before 1.21 can crash
// on it. The statements of records are so short that there is no need to cancel them. It replaces
// cfg.BeforeConnect by a function that calls it.
func NoCancel(cfg *pgxpool.Config) {
	before := cfg.BeforeConnect
	cfg.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		var connected atomic.Bool // a dial after that is for a cancel request
		dial, after := c.DialFunc, c.AfterConnect
		c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if connected.Load() {
				return nil, errNoCancel
			}
			return dial(ctx, network, addr)
		}
		c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
			connected.Store(true)
			if after != nil {
				return after(ctx, conn)
			}
			return nil
		}
		if before != nil {
			return before(ctx, c)
		}
		return nil
	}
}

// errNoCancel is the error of a cancel request, which pgx ignores.
var errNoCancel = errors.New("no cancel requests are sent")

// code returns the server's code of an error, or "" if the error is not from the server.
func code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// failure converts an error of the driver, and that of the attempt before it, to an error of the
// records. It is ErrConfig if the login lacks a privilege or the table does not exist.
func failure(before, err error) error {
	kind, hint := driver.ErrUnavailable, recordsql.Hint(code(err))
	if recordsql.Misconfigured(code(err)) {
		kind = driver.ErrConfig
	}
	if before != nil {
		return fmt.Errorf("%w: records in PostgreSQL: %w: %w%s", kind, before, err, hint)
	}
	return fmt.Errorf("%w: records in PostgreSQL: %w%s", kind, err, hint)
}
