// Package sqlfloor has the SQL of the guards, for all clients of a database.
package sqlfloor

import _ "embed"

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
