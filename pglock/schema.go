package pglock

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/jackc/pgx/v5/pgconn"
)

// The classes of the engine's own advisory locks, which have two integers as their key: the class
// is the first one. The locks of names have one bigint key.
const (
	classSchema  = 1717923427 // serializes changes of the schema; held by a transaction
	classGate    = 1717923428 // serializes requests for a shared key; held by a transaction
	classSession = 1717923430 // with a session's id: the session is connected
	classTicket  = 1717923434 // with the low bits of a ticket: the request is waiting
)

// schemaVersion is the schema version that this engine needs. otherVersion says what to do about
// another one.
const (
	schemaVersion = 2
	otherVersion  = "use one version of the program everywhere; or, while no lock is held, drop the schema fencelock, which deletes its records and limits, and run fencelock init"
)

// functionsRevision counts the changes of the functions within a version. Programs work with the
// functions of any revision. It is in the comment of the schema.
const functionsRevision = 1

// sweepPage is how many rows of a table one call examines that deletes leftover rows. spentTickets is
// how many tickets of requests that are gone a request passes in one call.
const (
	sweepPage    = 200
	spentTickets = 100
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// numbers replaces the placeholders of the SQL files.
var numbers = strings.NewReplacer("{schema}", strconv.Itoa(classSchema), "{gate}", strconv.Itoa(classGate),
	"{session}", strconv.Itoa(classSession), "{ticket}", strconv.Itoa(classTicket), "{version}", strconv.Itoa(schemaVersion), "{longest}", strconv.FormatInt(driver.MaxDuration.Milliseconds(), 10), "{remedy}", otherVersion,
	"{revision}", strconv.Itoa(functionsRevision), "{page}", strconv.Itoa(sweepPage), "{dead}", strconv.Itoa(spentTickets))

// Schema returns the SQL that creates the schema fencelock and its contents. An engine runs it by
// itself if its role may create schemas. Otherwise an administrator runs it once per database, in
// one transaction. It may be run again on a schema of this version. Every role that can connect may
// then use the locks. Records belong to the schema's owner, who may grant other roles access.
func Schema() string {
	return strings.Join(schemaParts(), "\n") + "\n"
}

// schemaParts returns the parts of the schema's SQL.
func schemaParts() (parts []string) {
	for _, name := range []string{"tables", "session", "lock", "wait", "sweep", "rate"} {
		parts = append(parts, numbers.Replace(sqlText(name)))
	}
	return parts
}

// sqlText returns a file of the sql directory.
func sqlText(name string) string {
	b, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // the file is embedded
	}
	return string(b)
}

// create runs the schema's SQL, one client at a time. No statement waits for another client, and none
// takes long, because a server that does not answer counts as silent.
func create(ctx context.Context, c *pgconn.PgConn) error {
	exec := func(sql string) error { return c.Exec(ctx, sql).Close() }
	err := exec("BEGIN; SET LOCAL lock_timeout = 0")
	if err == nil {
		err = turnToCreate(ctx, c)
	}
	for _, sql := range append(schemaParts(), "COMMIT") {
		if err == nil {
			err = exec(sql)
		}
	}
	if err == nil {
		return nil
	}
	_ = c.Exec(ctx, "ROLLBACK").Close() // if it fails, the connection is closed
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == insufficientPrivilege {
		return refuse("the schema fencelock does not exist and the role may not create it; ask an administrator to run the SQL that fencelock init prints: %w", err)
	}
	return fmt.Errorf("creating the schema fencelock: %w", err)
}

// turnToCreate returns when this transaction may create the schema.
func turnToCreate(ctx context.Context, c *pgconn.PgConn) error {
	for {
		r, err := one(c.ExecParams(ctx, "SELECT pg_try_advisory_xact_lock("+strconv.Itoa(classSchema)+", 0)", nil, nil, nil, nil).Read())
		if err != nil || r.Text(0) == "t" {
			return err
		}
		if !retry.Sleep(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}
