// Package sqlrecords keeps records ([driver.Records]) in one table of a database, with
// database/sql: MariaDB, MySQL or PostgreSQL. The packages that need records can use it:
//
//	records := sqlrecords.New(db, sqlrecords.MySQL, nil)
//	if err := records.Init(ctx); err != nil { // makes the table, once
//		return err
//	}
//	visits := optimistic.New(records, nil)
//	jobs := idempotent.New(locks, records, nil) // with the locks of an engine
//	mails := ratelimit.New(ratelimit.OnRecords(records), "mails", ratelimit.PerHour(3), nil)
//
// Each call is one statement or two, each a transaction of its own, so a process that is stopped
// between them keeps no row locked. Records are as durable as the commits of the database.
package sqlrecords

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// Config tunes Records.
type Config struct {
	// Table is the name of the table: letters, digits and underscores, 55 at most, with a
	// schema before it or without ("app.records"). Empty means fencelock_record.
	Table string
}

// Records keeps records in a table. It is safe for concurrent use. It takes connections
// from the pool it was given: who holds all of them in transactions waits for himself.
type Records struct {
	db      *sql.DB
	dialect Dialect
	sql     statements
	invalid error        // of what New was given
	fit     atomic.Bool  // the connections are such that a statement commits by itself, and bytes stay as they are
	swept   retry.Period // of what has expired
}

var _ driver.Records = (*Records)(nil)

// Servers cut names of more than 63 characters, or refuse them; the index's has 8 more than
// the table's.
var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,54}$`)

// New returns the records in a table of db. It does no I/O; [Records.Init] makes the
// table. A dialect or a name of a table that makes no sense is an ErrConfig of each call.
//
// The connections of db must be READ COMMITTED or stricter, which every server is by
// itself. On MySQL their character_set_connection must be their character_set_client.
func New(db *sql.DB, dialect Dialect, cfg *Config) *Records {
	r := &Records{db: db, dialect: dialect}
	table := "fencelock_record"
	if cfg != nil && cfg.Table != "" {
		table = cfg.Table
	}
	switch {
	case dialect != PostgreSQL && dialect != MySQL:
		r.invalid = fmt.Errorf("%w: the dialect is neither PostgreSQL nor MySQL", driver.ErrConfig)
	case !tableName.MatchString(table):
		r.invalid = fmt.Errorf("%w: %q is no name of a table: want letters, digits and underscores, 55 at most", driver.ErrConfig, table)
	default:
		r.sql = dialect.statements(table)
	}
	return r
}

// Schema returns the statements that make the table, for an administrator, or for the
// migrations of a program; see [Records.Init]. A role that uses the records needs SELECT,
// INSERT, UPDATE and DELETE on it.
func (r *Records) Schema() []string { return r.sql.schema }

// Init makes the table if it is not there.
func (r *Records) Init(ctx context.Context) error {
	return r.call(ctx, func(ctx context.Context) error {
		for _, statement := range r.sql.schema {
			if _, err := r.db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// Get returns a record; see [driver.Records].
func (r *Records) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	rec := driver.Record{Key: key}
	err := r.call(ctx, func(ctx context.Context) error {
		var version []byte
		err := r.db.QueryRowContext(ctx, r.sql.get, []byte(key)).Scan(&version, &rec.Value)
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

// forEver is a TTL of some 70,000 years in microseconds, which overflows nothing.
const forEver = 1 << 61

// Swap replaces a record; see [driver.Records]. It is made again after a deadlock, or
// after it has waited too long for a row, but not after an error that leaves its outcome
// open. On MySQL the TTL counts from when the statement began, also if it waited for
// the row.
func (r *Records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	life := int64((ttl + time.Microsecond - 1) / time.Microsecond)
	if ttl == 0 {
		life = forEver
	}
	next := rand.Text() // nobody has had it before, whatever was restored
	row, old := []byte(key), []byte(version)
	value = append([]byte{}, value...) // nil would be NULL
	err := r.call(ctx, func(ctx context.Context) error {
		// The pool itself would make a statement twice if the driver said that it was not
		// sent, which some say in error; a connection of the pool does not.
		conn, err := r.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if version != "" {
			return change(ctx, conn, r.sql.update, []byte(next), value, life, row, old)
		}
		// A row that has expired is no record. If it is none of these, and cannot be
		// inserted then, there was a record between the two.
		err = change(ctx, conn, r.sql.revive, []byte(next), value, life, row)
		if errors.Is(err, driver.ErrConflict) {
			err = change(ctx, conn, r.sql.insert, row, []byte(next), value, life)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	r.sweep(ctx)
	return next, nil
}

// change makes a statement, and returns ErrConflict if it has changed no row.
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

// sweepLimit is how many rows a sweep removes at most, so that a swap does not wait long.
const sweepLimit = 1000

// sweep removes what has expired a while ago, once a minute, or with the next swap if there
// is more. It may fail: it comes again.
func (r *Records) sweep(ctx context.Context) {
	if !r.swept.Due(time.Minute) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	swept, err := r.db.ExecContext(ctx, r.sql.sweep)
	if err != nil {
		return
	}
	if rows, err := swept.RowsAffected(); err == nil && rows >= sweepLimit {
		r.swept.Again()
	}
}

// List returns records by a prefix of their keys; see [driver.Records]. It reads a range
// of the table.
func (r *Records) List(ctx context.Context, prefix string) (list []driver.Record, err error) {
	err = r.call(ctx, func(ctx context.Context) error {
		list = nil
		rows, err := r.db.QueryContext(ctx, r.sql.list, []byte(prefix), after(prefix))
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

// after returns the least bytes that are greater than all keys with a prefix. No key has
// a byte 0xff, which is not UTF-8.
func after(prefix string) []byte {
	for end := []byte(prefix); len(end) > 0; end = end[:len(end)-1] {
		if last := len(end) - 1; end[last] < 0xff {
			end[last]++
			return end
		}
	}
	return []byte{0xff}
}

// Clock returns the server's time; see [driver.Records].
func (r *Records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	var micros int64
	err = r.call(ctx, func(ctx context.Context) error {
		return r.db.QueryRowContext(ctx, r.sql.clock).Scan(&micros)
	})
	if err != nil {
		return earliest, latest, err
	}
	now := time.UnixMicro(micros)
	return now, now, nil
}

// limit bounds a call of a caller who has more time.
const limit = 30 * time.Second

// call asks the server, again as long as it says that it has done nothing and that this
// may pass.
func (r *Records) call(ctx context.Context, ask func(ctx context.Context) error) error {
	if r.invalid != nil {
		return r.invalid
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var why error // why the server refused the tries before
	for pause := retry.NewBackoff(5*time.Millisecond, 200*time.Millisecond); ; {
		err := r.check(ctx)
		if err == nil {
			err = ask(ctx)
		}
		if err == nil || errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrConfig) {
			return err
		}
		if !passing(err) {
			if ended := ctx.Err(); ended != nil && code(err) == "" && !errors.Is(err, ended) {
				err = fmt.Errorf("%w: %w", ended, err) // of a connection that was cut off drivers may say only that it is bad
			}
			return failure(why, err)
		}
		if why = err; !pause.Wait(ctx) {
			return failure(why, ctx.Err())
		}
	}
}

// check asks once whether statements commit by themselves, and whether bytes reach them as they
// are: the server writes the arguments of a prepared statement anew if the two character sets
// differ.
func (r *Records) check(ctx context.Context) error {
	if r.dialect != MySQL || r.fit.Load() {
		return nil
	}
	var commits, same bool
	if err := r.db.QueryRowContext(ctx, "SELECT @@autocommit, @@character_set_client = @@character_set_connection").Scan(&commits, &same); err != nil {
		return err
	}
	switch {
	case !commits:
		return fmt.Errorf("%w: the connections have autocommit off: add autocommit=1 to the data source name", driver.ErrConfig)
	case !same:
		return fmt.Errorf("%w: the connections have another character_set_connection than character_set_client, which changes bytes: leave collation_connection out of the data source name and of init_connect", driver.ErrConfig)
	}
	r.fit.Store(true)
	return nil
}
