// Package fencemysql is the guard of package fence for transactions of MariaDB and MySQL, with
// database/sql.
package fencemysql

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"

	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/internal/sqlfloor"
)

// Schema is the statement that creates the table of [Check], fence_floor, if it is not
// there: one row for each resource. A user of the guard needs SELECT, INSERT and UPDATE on
// it.
func Schema() string { return sqlfloor.MySQLSchema }

// maxName is how many bytes the name of a resource may have: the column's width.
const maxName = 767

// Check guards what tx writes to a resource. Call it before the writes, so that
// transactions do not wait for one another in a circle. It returns a *[fence.StaleError]
// if the token of ctx is stale, and the caller rolls back. Otherwise whoever else calls it
// for the resource waits until tx has ended, so that no write comes between.
//
// It is right in READ COMMITTED and every stricter isolation level. From REPEATABLE READ
// on, a plain SELECT of tx shows what was there when tx first read something: read after
// Check, and not before. Names of resources have 767 bytes at most.
//
// It guards as long as tx lasts. A deadlock (1213), or a row that has changed since the
// snapshot (1020, with innodb_snapshot_isolation), of Check or of any statement after it,
// has ended tx in the server, and a statement such as CREATE TABLE commits it: what is
// written in tx afterwards is not guarded, and Rollback does not undo it. So roll back after
// each error, and begin anew with Check. On MariaDB Check is an error in such a transaction;
// MySQL does not tell.
func Check(ctx context.Context, tx *sql.Tx, resource string) error {
	f, err := fence.From(ctx)
	if err != nil {
		return err
	}
	if len(resource) > maxName { // a server that is not strict would cut it
		return fmt.Errorf("%w: %.40q... has %d bytes, more than %d", fence.ErrResource, resource, len(resource), maxName)
	}
	// A server converts texts to the character set of the connection, which may lack
	// characters, and two names would become one. It converts no digits.
	name := hex.EncodeToString([]byte(resource))
	if _, err := tx.ExecContext(ctx, sqlfloor.MySQLRaise, name, f.Floor, f.Floor); err != nil {
		return fmt.Errorf("fence: check %q: %w", resource, err)
	}
	var floor int64
	var stale, stands bool
	err = tx.QueryRowContext(ctx, sqlfloor.MySQLStale, f.Token, name).Scan(&floor, &stale, &stands)
	switch {
	case err != nil:
		return fmt.Errorf("fence: floor of %q: %w", resource, err)
	case stale:
		return f.Refuse(ctx, resource, floor)
	case !stands:
		return fmt.Errorf("fence: check %q: the server has ended the transaction before: roll back, and begin anew", resource)
	}
	return nil
}

// Store is a [fence.Store] in the table of [Schema]. It shares its floors with [Check].
type Store struct{ DB *sql.DB }

// Check compares and raises a floor, in a transaction of its own.
func (s Store) Check(ctx context.Context, resource string, f fence.Fence) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("fence: check %q: %w", resource, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	if err := Check(fence.NewContext(ctx, f), tx, resource); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("fence: check %q: %w", resource, err)
	}
	return nil
}
