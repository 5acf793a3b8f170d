package sqlrecords

import (
	"strconv"
	"strings"
)

// Dialect is the SQL dialect of a server.
type Dialect int

// The dialects. MySQL is for MariaDB 10.5 and later and for MySQL 8.0 and later.
const (
	PostgreSQL Dialect = iota + 1
	MySQL
)

// statements are the SQL statements for one table. Keys, versions and values are bytes, so that the
// character set of the database does not matter. expires is in microseconds since 1970 by the
// server's clock.
type statements struct {
	schema                                          []string
	get, list, update, revive, insert, sweep, clock string
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

// statements returns the statements for a table.
func (d Dialect) statements(table string) statements {
	own, sweep, schema := postgres, sweepPostgres, []string{tablePostgres, indexPostgres}
	if d == MySQL {
		own, sweep, schema = mysql, sweepMySQL, []string{tableMySQL}
	}
	_, index, qualified := strings.Cut(table, ".")
	if !qualified {
		index = table
	}
	named := strings.NewReplacer("{table}", table, "{index}", index, "{limit}", strconv.Itoa(sweepLimit))
	write := func(statement string) string {
		statement = named.Replace(own.Replace(statement))
		if d == PostgreSQL {
			return numbered(statement)
		}
		return statement
	}
	for i := range schema {
		schema[i] = write(schema[i])
	}
	return statements{
		schema: schema,
		get:    write(getSQL), list: write(listSQL), clock: write(clockSQL), sweep: write(sweep),
		update: write(updateSQL), revive: write(reviveSQL), insert: write(insertSQL),
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
