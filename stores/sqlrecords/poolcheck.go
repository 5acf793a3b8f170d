package sqlrecords

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// poolCheck says whether the connections of a pool have been checked.
type poolCheck struct {
	passed atomic.Bool
	slot   chan struct{} // has a value while a call checks: several could wait for each other's second connection
}

func newPoolCheck() poolCheck { return poolCheck{slot: make(chan struct{}, 1)} }

// invalidate makes the next call check again.
func (c *poolCheck) invalidate() { c.passed.Store(false) }

// require checks once that the connections are suitable.
func (c *poolCheck) require(ctx context.Context, db *sql.DB, dialect Dialect) error {
	if c.passed.Load() {
		return nil
	}
	select {
	case c.slot <- struct{}{}:
		defer func() { <-c.slot }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.passed.Load() {
		return nil
	}
	check := checkPostgres
	if dialect == MySQL {
		check = checkMySQL
	}
	if err := check(ctx, db); err != nil {
		return err
	}
	c.passed.Store(true)
	return nil
}

// checkMySQL checks that statements commit by themselves, and that bytes arrive unchanged: if the two
// character sets differ, the server converts the arguments of prepared statements.
func checkMySQL(ctx context.Context, db *sql.DB) error {
	var commits, same bool
	const query = "SELECT @@autocommit, @@character_set_client = @@character_set_connection LIMIT 1"
	if err := db.QueryRowContext(ctx, query).Scan(&commits, &same); err != nil {
		return err
	}
	switch {
	case !commits:
		return fmt.Errorf("%w: the connections have autocommit off: add autocommit=1 to the data source name", driver.ErrConfig)
	case !same:
		return fmt.Errorf("%w: the connections have a character_set_connection that differs from character_set_client, which changes bytes: remove collation_connection from the data source name and from init_connect", driver.ErrConfig)
	}
	return nil
}

// checkPostgres checks that the driver can read bytes, since some know the hexadecimal form only, and
// that the server executes no other statement than the one that the driver has sent. Some drivers send
// a statement in one transaction and execute it, with its arguments, in the next one. Behind a pooler
// that can be the statement of another client, which is about another table.
func checkPostgres(ctx context.Context, db *sql.DB) error {
	// The server evaluates 'now' when it parses the statement, and now() when it executes that.
	// No other statement of the records has three arguments: another one cannot answer instead.
	const query = "SELECT 'now'::timestamptz = now() OR $1::bytea = $2::bytea OR $2 = $3::bytea, current_setting('bytea_output') = 'hex'"
	var together, hex bool
	if err := db.QueryRowContext(ctx, query, []byte("a"), []byte("b"), []byte("c")).Scan(&together, &hex); err != nil {
		return err
	}
	reads := hex
	if !hex {
		var err error
		if reads, err = readsBytes(ctx, db); err != nil {
			return err
		}
	}
	if !reads {
		return fmt.Errorf("%w: the connections have bytea_output=escape, which the driver cannot read: add bytea_output=hex to the data source name", driver.ErrConfig)
	}
	if together {
		return nil
	}
	shared, err := sharesConnections(ctx, db)
	if err == nil && shared {
		err = fmt.Errorf("%w: a pooler shares connections, and the driver prepares statements, so it could write to the wrong table: %s", driver.ErrConfig, useExec)
	}
	return err
}

// readsBytes reports whether the driver can read bytes in the other form. It may ask for them in
// binary, which has no such forms.
func readsBytes(ctx context.Context, db *sql.DB) (bool, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	var got []byte
	sample := []byte{0, 0xff, '\\', 'a'}
	err = conn.QueryRowContext(ctx, "SELECT $1::bytea WHERE $2::bytea <> $3::bytea", sample, []byte("b"), []byte("c")).Scan(&got)
	if err != nil && (code(err) != "" || conn.PingContext(ctx) != nil) {
		return false, err
	}
	return err == nil && bytes.Equal(got, sample), nil
}

// useExec says how a driver sends a statement and its arguments in one transaction.
const useExec = "add default_query_exec_mode=exec (pgx) or binary_parameters=yes (lib/pq) to the data source name"

// sharesConnections reports whether two connections share one of the server, or one of them uses several in
// turn. A busy pooler may return the same one by chance, so it asks more than once.
func sharesConnections(ctx context.Context, db *sql.DB) (bool, error) {
	if db.Stats().MaxOpenConnections == 1 {
		return false, fmt.Errorf("%w: the driver prepares statements, and whether a pooler shares connections cannot be found out with one connection: allow two (SetMaxOpenConns), or %s", driver.ErrConfig, useExec)
	}
	a, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer a.Close()
	// Other users of the pool may also have one connection and wait for another one.
	limited, cancel := context.WithTimeout(ctx, time.Second+retry.Jitter(4*time.Second))
	defer cancel()
	b, err := db.Conn(limited)
	if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			return false, errOneConnection
		}
		return false, err
	}
	defer b.Close()
	var first, other, again int
	if err := a.QueryRowContext(ctx, pidSQL).Scan(&first); err != nil {
		return false, err
	}
	for range 4 {
		if err := b.QueryRowContext(ctx, pidSQL).Scan(&other); err != nil {
			return false, err
		}
		if err := a.QueryRowContext(ctx, pidSQL).Scan(&again); err != nil {
			return false, err
		}
		if first == other || first != again {
			return true, nil
		}
	}
	return false, nil
}

// pidSQL returns the number of the server process that executes it.
const pidSQL = "SELECT pg_backend_pid()"
