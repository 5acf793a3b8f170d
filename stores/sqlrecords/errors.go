package sqlrecords

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/recordsql"
)

// code returns the server's code of an error, or "" if the error is not from the server. It is an
// SQLSTATE, from the method of errors of pgx and lib/pq, or a number of MySQL, with which the text
// of its driver's errors starts.
func code(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	rest, ok := strings.CutPrefix(err.Error(), "Error ")
	if !ok {
		return ""
	}
	return rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
}

// errOneConnection is the error of a check that did not get its second connection.
var errOneConnection = errors.New("the check for a pooler that shares connections got no second connection: allow two in every pool, or " + useExec)

// passing reports whether the server has done nothing and a retry may succeed: after a deadlock or a lock
// wait timeout, say.
func passing(err error) bool {
	c := code(err)
	return errors.Is(err, errOneConnection) || recordsql.Passing(c) || slices.Contains([]string{"1213", "1205", "1020"}, c) // MySQL, MariaDB
}

// protocolViolation is the code of the server if a statement of another client gets the arguments of
// this one, and of PgBouncer for all of its own errors.
const protocolViolation = "08P01"

// crossed reports whether a driver has executed a statement that its connection does not have, as
// happens behind a pooler that shares connections. The server has done nothing then.
func crossed(err error) bool {
	c := code(err)
	return c == "26000" || c == "42P05" || c == protocolViolation && strings.Contains(err.Error(), "bind message")
}

// failure converts an error of the driver, and that of the attempt before it, to an error of the
// records. It is ErrConfig if the login lacks a privilege, the table does not exist, or a pooler mixes
// up statements.
func failure(before, err error) error {
	kind, hint := driver.ErrUnavailable, recordsql.Hint(code(err))
	switch c := code(err); {
	case crossed(err):
		kind, hint = driver.ErrConfig, " (if a pooler shares connections, "+useExec+")"
	case c == "1146":
		kind, hint = driver.ErrConfig, " (Init creates it)"
	case slices.Contains([]string{"1044", "1045", "1049", "1054", "1064", "1142", "1143", "1698"}, c):
		kind = driver.ErrConfig
	case recordsql.Misconfigured(c):
		kind = driver.ErrConfig
	}
	if before != nil {
		return fmt.Errorf("%w: records in SQL: %w: %w%s", kind, before, err, hint)
	}
	return fmt.Errorf("%w: records in SQL: %w%s", kind, err, hint)
}
