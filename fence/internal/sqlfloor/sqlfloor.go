// Package sqlfloor is the SQL of the guards, independent of the client.
package sqlfloor

import (
	_ "embed"
	"strings"
	"unicode/utf8"
)

// The statements for PostgreSQL. Raise takes a resource, a token and a floor, and changes no row if
// the token is stale. Floor takes a resource.
var (
	//go:embed postgres_schema.sql
	PostgresSchema string
	//go:embed postgres_raise.sql
	PostgresRaise string
	//go:embed postgres_floor.sql
	PostgresFloor string
)

// The statements for MariaDB and MySQL. Raise takes a resource in hex, and a floor twice. Stale
// takes a token and a resource in hex, in the same transaction. It returns the floor, whether the
// token is stale, and whether the transaction is still open, because otherwise no row is locked. It
// always returns a row, unless the name was truncated.
var (
	//go:embed mysql_schema.sql
	MySQLSchema string
	//go:embed mysql_raise.sql
	MySQLRaise string
	//go:embed mysql_stale.sql
	MySQLStale string
)

// PostgresMaxName is the maximum length of a resource's name in bytes. An index entry has a maximum
// of about 2,700.
const PostgresMaxName = 2000

// PostgresName reports whether PostgreSQL can store the name of a resource.
func PostgresName(resource string) bool {
	return len(resource) <= PostgresMaxName && utf8.ValidString(resource) && !strings.ContainsRune(resource, 0)
}
