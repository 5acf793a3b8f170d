package pglock

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed schema.sql
var schema string

// newest is the function that the latest version of the schema has added: a database
// that has it has all the rest.
const newest = "ahead"

// Schema returns the SQL that gives a database what the engine keeps there: the
// schema fencelock. An engine runs it by itself when its role may create schemas;
// otherwise an administrator runs it once, in one transaction. It may be run
// again, and it lets every role that can connect use the locks.
func Schema() string { return schema }

// Init creates the schema, or completes it, with the rights of the pool's role.
func (e *Engine) Init(ctx context.Context) error {
	c, err := e.connect(ctx)
	if err != nil {
		return unavailable(err)
	}
	defer c.Close(ctx)
	err = c.Exec(ctx, "BEGIN").Close()
	if err == nil {
		err = create(ctx, c)
	}
	if err == nil {
		err = c.Exec(ctx, "COMMIT").Close()
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// createOnce runs the schema's SQL, which also completes an older schema, unless
// somebody else did so just before.
func createOnce(ctx context.Context, c *pgconn.PgConn) error {
	if err := c.Exec(ctx, "BEGIN; SELECT pg_advisory_xact_lock(1717923427, 0)").Close(); err != nil {
		return err
	}
	// Not to_regproc: a session may remember, until its transaction is over, that
	// there was no such function.
	r, err := one(c.ExecParams(ctx, `SELECT NOT EXISTS (SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE n.nspname = 'fencelock' AND p.proname = '`+newest+`')`, nil, nil, nil, nil).Read())
	if err == nil && r.text(0) == "t" {
		err = create(ctx, c)
	}
	if end := c.Exec(ctx, "COMMIT").Close(); err == nil {
		err = end
	}
	return err
}

// create runs the schema's SQL in the transaction that has begun. It waits for
// others who do so at the same time.
func create(ctx context.Context, c *pgconn.PgConn) error {
	err := c.Exec(ctx, schema).Close()
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
		return nil
	case ok && pg.Code == "42501":
		return refuse("the schema fencelock is not there, or of an older version, and the role may not create it; let an administrator run the SQL that fencelock init prints: %w", err)
	}
	return fmt.Errorf("creating the schema fencelock: %w", err)
}

// object writes a JSON object.
func object(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	return b
}
