// Package fencemysql is the guard of package fence for transactions of MariaDB and MySQL with
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

// Schema returns the statement that creates the table of [Check], fence_floor, if it does not
// exist. The table has one row per resource. Users of the guard need SELECT, INSERT and UPDATE on
// it.
func Schema() string { return sqlfloor.MySQLSchema }

// maxName is the maximum length of a resource's name in bytes: the width of the column.
const maxName = 767

// Check guards the writes of tx to a resource. Call it before the writes, so that transactions do
// not deadlock. If the token of ctx is stale, it returns a *[fence.StaleError]; then roll back.
// Otherwise other callers of Check for the resource wait until tx has ended, so that no write comes
// in between. The name of a resource has at most 767 bytes.
//
// Check is correct in READ COMMITTED and stricter isolation levels. From REPEATABLE READ on, a
// plain SELECT of tx shows the state at the first read of tx: read after Check, not before.
//
// The guard ends with tx on the server, which may be earlier than the program expects. A deadlock
// (1213) or a row that has changed since the snapshot (1020, with innodb_snapshot_isolation) ends
// tx, in Check or any later statement. Statements such as CREATE TABLE commit it. Later writes with
// tx are then not guarded, and Rollback does not undo them. So roll back after every error and
// start over with Check. In such a transaction Check returns an error on MariaDB; MySQL does not
// report it.
func Check(ctx context.Context, tx *sql.Tx, resource string) error {
	f, err := fence.From(ctx)
	if err != nil {
		return err
	}
	if len(resource) > maxName { // a server that is not in strict mode would truncate it
		return fmt.Errorf("%w: %.40q... has %d bytes, more than %d", fence.ErrResource, resource, len(resource), maxName)
	}
	// The server converts text to the character set of the connection. If that lacks characters,
	// two names could become one. Digits are not converted.
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
		return fmt.Errorf("fence: check %q: the server has already ended the transaction: roll back and start over", resource)
	}
	return nil
}

// Store is a [fence.Store] in the table of [Schema]. It shares its floors with [Check].
type Store struct{ DB *sql.DB }

// Check checks and raises a floor in its own transaction.
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
