package pglock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
)

// records implements driver.Records. It has connections of its own, so that long values and slow
// disks do not delay locks.
type records struct {
	pipelines *pipelines
	swept     retry.Period // expired records
}

// stands selects records that have not expired.
const stands = `(expires IS NULL OR expires > clock_timestamp())`

// Parameters of the statements: $1 key, $2 prefix of the versions to write, $3 value in hex, $4
// microseconds to live (0: no expiry), $5 version to replace. The statements that write call
// durable first, so that their commit waits for the disk. A version that begins with $2 was written
// by an earlier attempt of the same swap, and stays. Once it has expired it cannot return, since
// each transaction writes a version of its own.
const (
	getSQL     = `SELECT version, encode(value, 'hex') FROM fencelock.record WHERE key = $1::text AND ` + stands
	expiresAt  = `CASE WHEN $4::bigint > 0 THEN clock_timestamp() + $4::bigint * interval '1 microsecond' END`
	durableCT  = `WITH durable AS MATERIALIZED (SELECT fencelock.durable()) `
	newVersion = `$2::text || '.' || pg_current_xact_id()::text`
	insertSQL  = durableCT + `INSERT INTO fencelock.record AS r (key, version, value, expires)
SELECT $1::text, ` + newVersion + `, decode($3::text, 'hex'), ` + expiresAt + ` FROM durable WHERE $5::text = ''
ON CONFLICT (key) DO UPDATE SET version = CASE WHEN r.expires <= clock_timestamp() THEN excluded.version ELSE r.version END,
	value = excluded.value, expires = excluded.expires
WHERE r.expires <= clock_timestamp() OR starts_with(r.version, $2::text) RETURNING version`
	updateSQL = durableCT + `UPDATE fencelock.record SET version = CASE WHEN version = $5::text THEN ` + newVersion + ` ELSE version END,
	value = decode($3::text, 'hex'), expires = ` + expiresAt + `
FROM durable WHERE key = $1::text AND (version = $5::text OR starts_with(version, $2::text)) AND ` + stands + ` RETURNING version`
	// pageSQL reads a page of records with a prefix, after a key, in the order of the index.
	pageSQL = `SELECT key, version, encode(value, 'hex') FROM fencelock.record
WHERE starts_with(key, $1::text) AND key > $2::text AND ` + stands + ` ORDER BY key LIMIT $3::bigint`
	timeSQL = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
	// sweepSQL skips records that have only just expired, to avoid conflicts with writers.
	sweepSQL = `WITH gone AS (DELETE FROM fencelock.record WHERE key IN
(SELECT key FROM fencelock.record WHERE expires < clock_timestamp() - interval '1 minute' LIMIT 1000 FOR UPDATE SKIP LOCKED) RETURNING 1)
SELECT count(*) FROM gone`
)

// ask runs one query in the pipeline of key. It repeats the query if it got no connection or lost
// it; unsure, if not nil, is called before a query is repeated that the server may have executed.
func (r *records) ask(ctx context.Context, key string, unsure func(), sql string, args ...any) ([]pipe.Row, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := r.pipelines.retryUnavailable(ctx, key, func(s *session) *pipe.Call { return s.Query(sql, args...) }, unsure)
	if err == nil {
		return c.Wait(ctx)
	}
	if pg, ok := serverError(err); ok && pg.Code == insufficientPrivilege {
		if _, dialled := errors.AsType[*dialError](err); !dialled {
			err = refuse("the role may not use the records; ask their owner to GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock.record TO the role: %w", err)
		}
	}
	return nil, failure(err)
}

// Get returns a record; see [driver.Records].
func (r *records) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := driver.CheckName(key); err != nil {
		return driver.Record{}, err
	}
	rows, err := r.ask(ctx, readKey, nil, getSQL, key)
	if err != nil || len(rows) == 0 {
		return driver.Record{Key: key}, err
	}
	return readRecord(key, rows[0].Text(0), rows[0].Text(1))
}

// readRecord makes a record from a row with a value in hex.
func readRecord(key, version, inHex string) (driver.Record, error) {
	value, err := hex.DecodeString(inHex)
	if err != nil {
		return driver.Record{}, fmt.Errorf("%w: postgres: the value of %q: %w", driver.ErrUnavailable, key, err)
	}
	return driver.Record{Key: key, Value: value, Version: version}, nil
}

// Swap replaces a record; see [driver.Records]. If the connection is lost, the swap is repeated on
// a new one.
func (r *records) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if err := driver.CheckSwap(key, value, ttl); err != nil {
		return "", err
	}
	sql := updateSQL
	if version == "" {
		sql = insertSQL
	}
	next, maybe := rand.Text(), false // an earlier attempt may have been executed
	micros := int64((ttl + time.Microsecond - 1) / time.Microsecond)
	rows, err := r.ask(ctx, "swap:"+key, func() { maybe = true }, sql, key, next, hex.EncodeToString(value), micros, version)
	switch {
	case err != nil && maybe && !errors.Is(err, driver.ErrUnavailable): // a refusal of the last attempt proves nothing about earlier ones
		return "", fmt.Errorf("%w: the record of %q may have changed: %s", driver.ErrUnavailable, key, err.Error())
	case err != nil:
		return "", err
	case len(rows) == 0 && maybe:
		return "", fmt.Errorf("%w: postgres: the record of %q has changed, perhaps by this swap; read it again", driver.ErrUnavailable, key)
	case len(rows) == 0:
		return "", driver.ErrConflict
	}
	r.sweep(ctx)
	return rows[0].Text(0), nil
}

// sweep deletes expired records, at most once a minute, in the background.
func (r *records) sweep(ctx context.Context) {
	if !r.swept.Due(time.Minute) {
		return
	}
	go func() { // ends within askLimit
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
		defer cancel()
		for r.sweepPage(ctx) {
		}
	}()
}

// sweepPage deletes some expired records, and reports whether there were any.
func (r *records) sweepPage(ctx context.Context) bool {
	c, err := r.pipelines.call(ctx, "sweep records", func(s *session) *pipe.Call { return s.Query(sweepSQL) })
	if err != nil {
		return false // the next sweep does it
	}
	rows, err := c.Wait(ctx)
	return err == nil && len(rows) == 1 && rows[0].Int(0) > 0
}

// pageRows is how many records List reads at a time.
const pageRows = 100

// List returns the records whose keys have a prefix; see [driver.Records]. It reads them page by
// page: one query for all could exceed the time limit of a statement, and would delay concurrent
// swaps.
func (r *records) List(ctx context.Context, prefix string) (list []driver.Record, err error) {
	text := textPrefix(prefix)
	for after := ""; ; {
		rows, err := r.ask(ctx, listKey, nil, pageSQL, text, after, int64(pageRows))
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			rec, err := readRecord(row.Text(0), row.Text(1), row.Text(2))
			if err != nil {
				return nil, err
			}
			if after = rec.Key; strings.HasPrefix(rec.Key, prefix) {
				list = append(list, rec)
			}
		}
		if len(rows) < pageRows {
			sort.SliceStable(list, func(i, j int) bool { return list[i].Key < list[j].Key })
			return list, nil
		}
	}
}

// Clock returns the server's time; see [driver.Records].
func (r *records) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	rows, err := r.ask(ctx, readKey, nil, timeSQL)
	if err != nil {
		return earliest, latest, err
	}
	if len(rows) != 1 {
		return earliest, latest, fmt.Errorf("%w: postgres: %d rows instead of one", driver.ErrUnavailable, len(rows))
	}
	now := rows[0].Micros(0)
	return now, now, nil
}
