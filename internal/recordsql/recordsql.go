// Package recordsql has the SQL statements of records, for the packages that send them.
package recordsql

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// DefaultTable is the table if none is named.
const DefaultTable = "fencelock_record"

// Servers truncate or refuse names of more than 63 characters. The name of the index has 8 more
// than that of the table.
var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,54}$`)

// CheckTable returns an ErrConfig if a name cannot be that of a table.
func CheckTable(table string) error {
	if !tableName.MatchString(table) {
		return fmt.Errorf("%w: %q is not a valid table name: use at most 55 letters, digits and underscores", driver.ErrConfig, table)
	}
	return nil
}

// Statements are the SQL statements for one table. Keys, versions and values are bytes, so that the
// character set of the database does not matter. expires is in microseconds since 1970 by the
// server's clock.
//
// The arguments of Get are the key, those of List a prefix and [After] it, of Update the new version, the
// value, the life, the key and the old version, of Revive the same without the last one, and of Insert
// the key, the new version, the value and the life.
type Statements struct {
	Schema                                          []string
	Get, List, Update, Revive, Insert, Sweep, Clock string
}

// forEver is a TTL of about 70,000 years in microseconds. It cannot overflow.
const forEver = 1 << 61

// Life returns a TTL in microseconds, rounded up. A TTL of 0 is endless.
func Life(ttl time.Duration) int64 {
	if ttl == 0 {
		return forEver
	}
	return int64((ttl + time.Microsecond - 1) / time.Microsecond)
}

// After returns the smallest bytes that are greater than all keys with a prefix. Keys are UTF-8, so
// they have no byte 0xff.
func After(prefix string) []byte {
	for end := []byte(prefix); len(end) > 0; end = end[:len(end)-1] {
		if last := len(end) - 1; end[last] < 0xff {
			end[last]++
			return end
		}
	}
	return []byte{0xff}
}

// SweepLimit is the maximum number of rows of a sweep, so that a swap does not wait long.
const SweepLimit = 1000

// Passing reports whether PostgreSQL has done nothing after an error with this code, and a retry may
// succeed: after a deadlock, a lock wait timeout, a row that has changed since the snapshot, a table
// that is being created concurrently, or a connection that was idle for longer than the server allows.
func Passing(code string) bool {
	return slices.Contains([]string{"40001", "40P01", "55P03", "23505", "42P07", "42710", "57P05"}, code)
}

// Misconfigured reports whether a code of PostgreSQL means a wrong login, a missing privilege, or a
// missing table or database.
func Misconfigured(code string) bool {
	return len(code) == 5 && slices.Contains([]string{"42", "28", "3D", "3F"}, code[:2]) && !Passing(code)
}

// Hint returns what to do after an error with a code of PostgreSQL, with a space before it, or "".
func Hint(code string) string {
	switch code {
	case "42P01":
		return " (Init creates it)"
	case "25006":
		return " (the server is a standby, or read-only for this role: connect to the primary, or allow the role to write)"
	}
	return ""
}

// The differences between the dialects. MySQL's now is the start of the statement. It uses UTC,
// since local times can occur twice.
var (
	postgres = strings.NewReplacer(
		"{now}", "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		"{INSERT}", "INSERT", "{or nothing}", "ON CONFLICT DO NOTHING", "{all}", "ALL",
	)
	mysql = strings.NewReplacer(
		"{now}", "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
		"{INSERT}", "INSERT IGNORE", "{or nothing}", "", "{all}", "18446744073709551615",
	)
)

// The statements, with a question mark for each argument. A row is a record until it expires. Rows
// that have just expired are not swept, so that a sweep does not lock rows of concurrent writers.
// Without a LIMIT, MySQL's sql_select_limit applies.
const (
	getSQL    = "SELECT version, value FROM {table} WHERE record_key = ? AND expires > {now} LIMIT 1"
	listSQL   = "SELECT record_key, version, value FROM {table} WHERE record_key >= ? AND record_key < ? AND expires > {now} ORDER BY record_key LIMIT {all}"
	updateSQL = "UPDATE {table} SET version = ?, value = ?, expires = {now} + ? WHERE record_key = ? AND version = ? AND expires > {now}"
	reviveSQL = "UPDATE {table} SET version = ?, value = ?, expires = {now} + ? WHERE record_key = ? AND expires <= {now}"
	insertSQL = "{INSERT} INTO {table} (record_key, version, value, expires) VALUES (?, ?, ?, {now} + ?) {or nothing}"
	clockSQL  = "SELECT {now} LIMIT 1"

	sweepPostgres = "DELETE FROM {table} WHERE record_key IN (SELECT record_key FROM {table} WHERE expires < {now} - 60000000 LIMIT {limit} FOR UPDATE SKIP LOCKED)"
	sweepMySQL    = "DELETE FROM {table} WHERE expires < {now} - 60000000 ORDER BY expires LIMIT {limit}"

	tablePostgres = `CREATE TABLE IF NOT EXISTS {table} (
    record_key bytea PRIMARY KEY,
    version    bytea NOT NULL,
    value      bytea NOT NULL,
    expires    bigint NOT NULL
)`
	indexPostgres = "CREATE INDEX IF NOT EXISTS {index}_expires ON {table} (expires)"
	tableMySQL    = `CREATE TABLE IF NOT EXISTS {table} (
    record_key VARBINARY(512) PRIMARY KEY,
    version    VARBINARY(64) NOT NULL,
    value      MEDIUMBLOB NOT NULL,
    expires    BIGINT NOT NULL,
    KEY (expires)
) ENGINE = InnoDB`
)

// Postgres returns the statements for a table of PostgreSQL, with $1, $2 and so on for the arguments.
func Postgres(table string) Statements {
	write := writer(table, postgres)
	return all([]string{tablePostgres, indexPostgres}, sweepPostgres, func(s string) string { return numbered(write(s)) })
}

// MySQL returns the statements for a table of MySQL or MariaDB, with question marks for the arguments.
func MySQL(table string) Statements {
	return all([]string{tableMySQL}, sweepMySQL, writer(table, mysql))
}

// writer returns a function that completes a statement.
func writer(table string, own *strings.Replacer) func(string) string {
	_, index, qualified := strings.Cut(table, ".")
	if !qualified {
		index = table
	}
	named := strings.NewReplacer("{table}", table, "{index}", index, "{limit}", strconv.Itoa(SweepLimit))
	return func(statement string) string { return named.Replace(own.Replace(statement)) }
}

func all(schema []string, sweep string, write func(string) string) Statements {
	for i := range schema {
		schema[i] = write(schema[i])
	}
	return Statements{
		Schema: schema,
		Get:    write(getSQL), List: write(listSQL), Clock: write(clockSQL), Sweep: write(sweep),
		Update: write(updateSQL), Revive: write(reviveSQL), Insert: write(insertSQL),
	}
}

// numbered replaces question marks by $1, $2 and so on.
func numbered(statement string) string {
	parts := strings.Split(statement, "?")
	for i := 1; i < len(parts); i++ {
		parts[i] = "$" + strconv.Itoa(i) + parts[i]
	}
	return strings.Join(parts, "")
}
