package pglock

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/jackc/pgx/v5/pgconn"
)

// The classes of the engine's own advisory locks: the first of their two integers. The
// locks of names are of the other kind, of one bigint.
const (
	classSchema  = 1717923427 // who changes the schema; of a transaction
	classGate    = 1717923428 // who counts the shared holders of a key; of a transaction
	classSession = 1717923430 // with a session's id: the session is connected
	classTicket  = 1717923434 // with a ticket's low bits: the request waits
)

// schemaVersion is the version of the schema that this engine needs, and otherVersion what to do
// about another one.
const (
	schemaVersion = 1
	otherVersion  = "run programs of one version only; or, while nobody holds a lock, drop the schema fencelock, which forgets its records and limits, and run fencelock init"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// numbers writes the classes, what is about the version, and the longest TTL, where SQL names them.
var numbers = strings.NewReplacer("{schema}", strconv.Itoa(classSchema), "{gate}", strconv.Itoa(classGate),
	"{session}", strconv.Itoa(classSession), "{ticket}", strconv.Itoa(classTicket), "{version}", strconv.Itoa(schemaVersion), "{longest}", strconv.FormatInt(driver.MaxDuration.Milliseconds(), 10), "{remedy}", otherVersion)

// Schema returns the SQL that gives a database what the engine keeps there: the
// schema fencelock. An engine runs it by itself when its role may create schemas;
// otherwise an administrator runs it once, in one transaction. It may be run
// again where the schema is of this version, and it lets every role that can connect use the locks. The records are their
// owner's, who grants them to others.
func Schema() string {
	var all strings.Builder
	for _, name := range []string{"tables", "session", "lock", "wait", "rate"} {
		all.WriteString(numbers.Replace(sqlText(name)))
		all.WriteByte('\n')
	}
	return all.String()
}

// sqlText returns the text of a file of package sql.
func sqlText(name string) string {
	b, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}

// create runs the schema's SQL. It waits for others who do so at the same time.
func create(ctx context.Context, c *pgconn.PgConn) error {
	var err error
	// Others who create it may take a while, and this connection has no leases yet.
	for _, sql := range []string{"BEGIN", "SET LOCAL lock_timeout = 0", "SELECT pg_advisory_xact_lock(" + strconv.Itoa(classSchema) + ", 0)", Schema(), "COMMIT"} {
		if err = c.Exec(ctx, sql).Close(); err != nil {
			break
		}
	}
	if err == nil {
		return nil
	}
	_ = c.Exec(ctx, "ROLLBACK").Close() // the connection is closed otherwise
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == insufficientPrivilege {
		return refuse("the schema fencelock is not there, and the role may not create it; let an administrator run the SQL that fencelock init prints: %w", err)
	}
	return fmt.Errorf("creating the schema fencelock: %w", err)
}
