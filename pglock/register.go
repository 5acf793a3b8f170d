package pglock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/jackc/pgx/v5/pgconn"
)

// Register returns the records of the database: the rows of fencelock.record, which
// every role that may connect can read and write. They are on disk, and where a
// standby must have commits on the standby, when Swap returns.
func (e *Engine) Register() driver.Register { return e.records }

// register is the records of an engine. It has a connection of its own, so that long
// values and slow disks hold up nothing of the locks.
type register struct {
	*ownTable
	swept atomic.Int64 // when what has expired was last removed, in seconds since 1970
}

func newRegister(e *Engine) *register {
	return &register{ownTable: newOwnTable(e, "fencelock.record")}
}

// stands is whether a row is a record still.
const stands = `(expires IS NULL OR expires > clock_timestamp())`

// What the statements have in common: $1 key, $2 version to write, $3 value in hex,
// $4 microseconds to live, 0 for ever, $5 version to replace. The first waits for the
// disk; so does the commit. A version that is there already was written by an earlier
// try of the same swap.
const (
	getSQL    = `SELECT version, encode(value, 'hex') FROM fencelock.record WHERE key = $1::text AND ` + stands
	expiresAt = `CASE WHEN $4::bigint > 0 THEN clock_timestamp() + $4::bigint * interval '1 microsecond' END`
	durableCT = `WITH durable AS MATERIALIZED (SELECT fencelock.durable()) `
	insertSQL = durableCT + `INSERT INTO fencelock.record AS r (key, version, value, expires)
SELECT $1::text, $2::text, decode($3::text, 'hex'), ` + expiresAt + ` FROM durable WHERE $5::text = ''
ON CONFLICT (key) DO UPDATE SET version = excluded.version, value = excluded.value, expires = excluded.expires
WHERE r.expires <= clock_timestamp() OR r.version = excluded.version RETURNING version`
	updateSQL = durableCT + `UPDATE fencelock.record SET version = $2::text, value = decode($3::text, 'hex'), expires = ` + expiresAt + `
FROM durable WHERE key = $1::text AND (version = $5::text AND ` + stands + ` OR version = $2::text) RETURNING version`
	recordsSQL = `SELECT key, version, encode(value, 'hex') FROM fencelock.record
WHERE starts_with(key, $1::text) AND ` + stands + ` ORDER BY key COLLATE "C"`
	timeSQL = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
	// sweepSQL leaves what has just expired, so that it meets no writer.
	sweepSQL = `DELETE FROM fencelock.record WHERE key IN
(SELECT key FROM fencelock.record WHERE expires < clock_timestamp() - interval '1 minute' LIMIT 1000 FOR UPDATE SKIP LOCKED)`
)

// ask makes one query, again if its connection could not be had or was lost; maybe is
// called before it is made again though the server may have carried it out.
func (r *register) ask(ctx context.Context, maybe func(), sql string, args ...any) (rows []pipe.Row, err error) {
	err = r.insist(ctx, func(ctx context.Context) error {
		s, err := r.session.get(ctx)
		if err != nil {
			return err
		}
		rows, err = s.Query(sql, args...).Wait(ctx)
		if _, refused := errors.AsType[*pgconn.PgError](err); err != nil && !refused {
			maybe()
		}
		return err
	})
	return rows, err
}

// Get returns a record; see [driver.Register].
func (r *register) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	rows, err := r.ask(ctx, func() {}, getSQL, key)
	if err != nil || len(rows) == 0 {
		return driver.Record{Key: key}, err
	}
	return readRecord(key, rows[0].Text(0), rows[0].Text(1))
}

func readRecord(key, version, inHex string) (driver.Record, error) {
	value, err := hex.DecodeString(inHex)
	if err != nil {
		return driver.Record{}, fmt.Errorf("%w: postgres: the value of %q: %w", driver.ErrUnavailable, key, err)
	}
	return driver.Record{Key: key, Value: value, Version: version}, nil
}

// Swap replaces a record; see [driver.Register]. A lost connection is made anew, and
// the swap made again.
func (r *register) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	sql := updateSQL
	if version == "" {
		sql = insertSQL
	}
	next, maybe := rand.Text(), false // an earlier try may have been carried out
	micros := int64((ttl + time.Microsecond - 1) / time.Microsecond)
	rows, err := r.ask(ctx, func() { maybe = true }, sql, key, next, hex.EncodeToString(value), micros, version)
	switch {
	case err != nil:
		return "", err
	case len(rows) == 0 && maybe:
		return "", fmt.Errorf("%w: postgres: the record of %q has changed, perhaps by this swap", driver.ErrUnavailable, key)
	case len(rows) == 0:
		return "", driver.ErrConflict
	}
	r.sweep(ctx)
	return next, nil
}

// sweep removes what has expired, once a minute, and waits for no answer.
func (r *register) sweep(ctx context.Context) {
	last, now := r.swept.Load(), time.Now().Unix()
	if now-last < 60 || !r.swept.CompareAndSwap(last, now) {
		return
	}
	if s, err := r.session.get(ctx); err == nil {
		s.Query(sweepSQL)
	}
}

// List returns records by a prefix of their keys; see [driver.Register].
func (r *register) List(ctx context.Context, prefix string) ([]driver.Record, error) {
	rows, err := r.ask(ctx, func() {}, recordsSQL, prefix)
	if err != nil {
		return nil, err
	}
	list := make([]driver.Record, len(rows))
	for i, row := range rows {
		if list[i], err = readRecord(row.Text(0), row.Text(1), row.Text(2)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Clock returns the server's time; see [driver.Register].
func (r *register) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	rows, err := r.ask(ctx, func() {}, timeSQL)
	if err != nil {
		return earliest, latest, err
	}
	if len(rows) != 1 {
		return earliest, latest, fmt.Errorf("%w: postgres: %d rows instead of one", driver.ErrUnavailable, len(rows))
	}
	now := rows[0].Micros(0)
	return now, now, nil
}
