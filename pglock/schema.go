package pglock

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/jackc/pgx/v5/pgconn"
)

// Schema returns the SQL that gives a database what the engine keeps there: the
// schema fencelock. An engine runs it by itself when its role may create schemas;
// otherwise an administrator runs it once, in one transaction. It may be run
// again, and it lets every role that can connect use the locks.
func Schema() string { return schema() }

// Init creates the schema, or completes it, with the rights of the pool's role.
func (e *Engine) Init(ctx context.Context) error {
	c, err := e.connect(ctx)
	if err != nil {
		return failure(err)
	}
	defer c.Close(ctx)
	if err := create(ctx, c); err != nil {
		return failure(err)
	}
	return nil
}

// complete makes sure that the database has the schema of this version, or a later one.
func complete(ctx context.Context, c *pgconn.PgConn) error {
	there, err := one(c.ExecParams(ctx, "SELECT to_regclass('fencelock.epoch') IS NOT NULL", nil, nil, nil, nil).Read())
	if err != nil {
		return err
	}
	if there.Text(0) != "t" {
		return create(ctx, c)
	}
	got := c.ExecParams(ctx, "SELECT version FROM fencelock.epoch", nil, nil, nil, nil).Read()
	switch {
	case got.Err != nil:
		return got.Err
	case len(got.Rows) == 0:
		return refuse("fencelock.epoch is empty, as after a restore of the schema without its data; drop the schema fencelock, and run fencelock init")
	case pipe.Row(got.Rows[0]).Int(0) >= schemaVersion:
		return nil
	}
	return create(ctx, c)
}

// create runs the schema's SQL. It waits for others who do so at the same time.
func create(ctx context.Context, c *pgconn.PgConn) error {
	err := c.Exec(ctx, "BEGIN READ WRITE").Close()
	if err == nil {
		err = c.Exec(ctx, "SELECT pg_advisory_xact_lock("+strconv.Itoa(classSchema)+", 0)").Close()
	}
	if err == nil {
		err = c.Exec(ctx, schema()).Close()
	}
	if err == nil {
		err = c.Exec(ctx, "COMMIT").Close()
	}
	if err == nil {
		return nil
	}
	_ = c.Exec(ctx, "ROLLBACK").Close() // the connection is closed otherwise
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == insufficientPrivilege {
		return refuse("the schema fencelock is not there, or of an older version, and the role may not create it; let an administrator run the SQL that fencelock init prints: %w", err)
	}
	return fmt.Errorf("creating the schema fencelock: %w", err)
}
