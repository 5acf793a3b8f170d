// Package sqlrecords stores records ([driver.Records]) in a table of MariaDB, MySQL or PostgreSQL,
// with database/sql. Packages that need records can use them:
//
//	records := sqlrecords.New(db, sqlrecords.MySQL, nil)
//	if err := records.Init(ctx); err != nil { // creates the table if it does not exist
//		return err
//	}
//	visits := optimistic.New(records, nil)
//	jobs := idempotent.New(locks, records, nil) // with the locks of an engine
//	mails := ratelimit.New(ratelimit.OnRecords(records), "mails", ratelimit.PerHour(3), nil)
//
// Each call executes one or two statements, each in its own transaction, so a paused process keeps
// no row locked. Records are as durable as the commits of the database. A call returns
// driver.ErrUnavailable after 30 seconds, or at the deadline of its context if that is earlier.
package sqlrecords

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/recordsql"
	"github.com/fencelock/fencelock/internal/retry"
)

// Config holds the settings of Records.
type Config struct {
	// Table is the name of the table: at most 55 letters, digits and underscores, optionally with a
	// schema ("app.records"). Empty means fencelock_record.
	Table string
}

// Records stores records in a table. It is safe for concurrent use. It takes connections from the
// pool of db: a caller that holds all of them in transactions deadlocks.
type Records struct {
	db        *sql.DB
	dialect   Dialect
	sql       recordsql.Statements
	invalid   error        // the error of invalid arguments of New
	poolCheck poolCheck    // of the connections
	swept     retry.Period // the sweeps of expired rows
}

var _ driver.Records = (*Records)(nil)

// Dialect is the SQL dialect of a server.
type Dialect int

// The dialects. MySQL is for MariaDB 10.5 and later and for MySQL 8.0 and later.
const (
	PostgreSQL Dialect = iota + 1
	MySQL
)

// New returns the records in a table of db. It does no I/O. [Records.Init] creates the table. With
// an invalid dialect or table name every call returns an ErrConfig.
//
// The connections of db must use READ COMMITTED or a stricter isolation level, which is the default
// of every server. On MySQL they need autocommit, and their character_set_connection must equal their
// character_set_client. On PostgreSQL their bytea_output must be hex, unless the driver reads the other
// form, and a driver behind a pooler that shares connections must send a statement and its arguments
// together: add default_query_exec_mode=exec (pgx) or binary_parameters=yes (lib/pq) to the data source
// name. A driver that prepares statements needs two connections of db for the first call. That call
// returns an ErrConfig if the connections are not suitable.
//
// New cannot see which schema a table without one is in: on PostgreSQL, processes whose search_path
// differs have different tables, and their locks do not exclude each other. Name the schema in
// [Config] if roles or connections differ in it.
func New(db *sql.DB, dialect Dialect, cfg *Config) *Records {
	r := &Records{db: db, dialect: dialect, poolCheck: newPoolCheck()}
	table := recordsql.DefaultTable
	if cfg != nil && cfg.Table != "" {
		table = cfg.Table
	}
	switch r.invalid = recordsql.CheckTable(table); {
	case dialect != PostgreSQL && dialect != MySQL:
		r.invalid = fmt.Errorf("%w: the dialect is neither PostgreSQL nor MySQL", driver.ErrConfig)
	case r.invalid != nil:
	case dialect == PostgreSQL:
		r.sql = recordsql.Postgres(table)
	default:
		r.sql = recordsql.MySQL(table)
	}
	return r
}

// Schema returns the statements that create the table, for an administrator or the migrations of a
// program; see [Records.Init]. Users of the records need SELECT, INSERT, UPDATE and DELETE on the
// table.
func (r *Records) Schema() []string { return r.sql.Schema }

// Init creates the table if it does not exist.
func (r *Records) Init(ctx context.Context) error {
	return r.call(ctx, func(ctx context.Context) error {
		for _, statement := range r.sql.Schema {
			if _, err := r.db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// Get implements driver.Records.
func (r *Records) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	rec := driver.Record{Key: key}
	err := r.call(ctx, func(ctx context.Context) error {
		var version []byte
		err := r.db.QueryRowContext(ctx, r.sql.Get, []byte(key)).Scan(&version, &rec.Value)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		rec.Version = string(version)
		return err
	})
	if err != nil {
		return driver.Record{}, err
	}
	return rec, nil
}

// Swap implements driver.Records. It retries after a deadlock or a lock wait timeout, but not after
// an error with an unknown outcome. On MySQL the TTL counts from the start of the statement, even
// if that waited for the row.
func (r *Records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	life, next := recordsql.Life(ttl), rand.Text() // unique even after a restore of the database
	row, old := []byte(key), []byte(version)
	value = append([]byte{}, value...) // nil would be NULL
	err := r.call(ctx, func(ctx context.Context) error {
		// Use one connection: the pool would execute a statement twice if the driver reports that
		// it was not sent, which some drivers do wrongly.
		conn, err := r.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if version != "" {
			return change(ctx, conn, r.sql.Update, []byte(next), value, life, row, old)
		}
		// An expired row is not a record. If no row has expired and none can be inserted, there is
		// a record.
		err = change(ctx, conn, r.sql.Revive, []byte(next), value, life, row)
		if errors.Is(err, driver.ErrConflict) {
			err = change(ctx, conn, r.sql.Insert, row, []byte(next), value, life)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	r.sweep(ctx)
	return next, nil
}

// change executes a statement. If it has changed no row, the error is ErrConflict.
func change(ctx context.Context, conn *sql.Conn, statement string, args ...any) error {
	result, err := conn.ExecContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
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
	swept, err := r.db.ExecContext(ctx, r.sql.Sweep)
	if err != nil {
		return
	}
	if rows, err := swept.RowsAffected(); err == nil && rows >= recordsql.SweepLimit {
		r.swept.Again()
	}
}

// List implements driver.Records. It reads a range of the table.
func (r *Records) List(ctx context.Context, prefix string) (list []driver.Record, err error) {
	err = r.call(ctx, func(ctx context.Context) error {
		list = nil
		rows, err := r.db.QueryContext(ctx, r.sql.List, []byte(prefix), recordsql.After(prefix))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var key, version, value []byte
			if err := rows.Scan(&key, &version, &value); err != nil {
				return err
			}
			list = append(list, driver.Record{Key: string(key), Value: value, Version: string(version)})
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Clock implements driver.Records with the server's clock.
func (r *Records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	var micros int64
	err = r.call(ctx, func(ctx context.Context) error {
		return r.db.QueryRowContext(ctx, r.sql.Clock).Scan(&micros)
	})
	if err != nil {
		return earliest, latest, err
	}
	now := time.UnixMicro(micros)
	return now, now, nil
}

// limit bounds each call. It is in the package's documentation.
const limit = 30 * time.Second

// call calls the server. It retries while the server reports that it has done nothing and a retry
// may succeed.
func (r *Records) call(ctx context.Context, ask func(ctx context.Context) error) error {
	if r.invalid != nil {
		return r.invalid
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var why error // why the server refused the last attempt
	for pause := retry.NewBackoff(5*time.Millisecond, 200*time.Millisecond); ; {
		err := r.poolCheck.require(ctx, r.db, r.dialect)
		if err == nil {
			err = ask(ctx)
		}
		if err == nil || errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrConfig) {
			return err
		}
		if !passing(err) {
			if ended := ctx.Err(); ended != nil && code(err) == "" && !errors.Is(err, ended) {
				err = fmt.Errorf("%w: %w", ended, err) // if a connection is cut off, a driver may only report that it is bad
			}
			if crossed(err) || code(err) == protocolViolation {
				r.poolCheck.invalidate()
			}
			return failure(why, err)
		}
		if why = err; !pause.Wait(ctx) {
			return failure(why, ctx.Err())
		}
	}
}
