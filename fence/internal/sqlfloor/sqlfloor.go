// Package sqlfloor contains the SQL of the guards, for all clients of a database.
package sqlfloor

import (
	_ "embed"
	"strings"
	"unicode/utf8"
)

// The statements for PostgreSQL. Raise takes a resource, a token and a floor; it
// changes no row for a token that is stale. Floor takes a resource.
var (
	//go:embed postgres_schema.sql
	PostgresSchema string
	//go:embed postgres_raise.sql
	PostgresRaise string
	//go:embed postgres_floor.sql
	PostgresFloor string
)

// The statements for MariaDB and MySQL. Raise takes a resource in hex and a floor twice. Stale
// takes a token and a resource in hex, in the same transaction, and finds the floor, whether the
// token is stale, and whether the transaction stands, without which nothing is locked. It
// always finds a row: none means that the name was cut.
var (
	//go:embed mysql_schema.sql
	MySQLSchema string
	//go:embed mysql_raise.sql
	MySQLRaise string
	//go:embed mysql_stale.sql
	MySQLStale string
)

// PostgresMaxName is how many bytes the name of a resource may have: an index holds no more than
// some 2,700 in a row.
const PostgresMaxName = 2000

// PostgresName reports whether a column of PostgreSQL can hold the name of a resource.
func PostgresName(resource string) bool {
	return len(resource) <= PostgresMaxName && utf8.ValidString(resource) && !strings.ContainsRune(resource, 0)
}
