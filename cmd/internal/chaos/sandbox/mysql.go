//go:build unix

package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
)

// ofMySQL returns a table of its own. Its name is that of the table of the URL and the letters and
// digits of the prefix.
func ofMySQL(u *url.URL, m *engineurl.MySQL, prefix string) (*Sandbox, error) {
	table, err := ownTable(u, m.Table, prefix)
	if err != nil {
		return nil, err
	}
	return &Sandbox{URL: u.String(), Hosts: []string{m.Client.Addr}, Dead: DeadLeases, sweep: mysqlTable{m, table}.sweep}, nil
}

// ownTable changes the table of a URL to one for a sandbox. It returns an error if its name is too long.
func ownTable(u *url.URL, table, prefix string) (string, error) {
	table += "_" + strings.Map(func(r rune) rune {
		if r == '_' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' {
			return r
		}
		return '_'
	}, prefix)
	if len(table) > longestTable {
		return "", fmt.Errorf("the table %s needs a name of at most %d characters: write a shorter --prefix", table, longestTable)
	}
	q := u.Query()
	q.Set("table", table)
	u.RawQuery = q.Encode()
	return table, nil
}

// longestTable is the longest name of a table of sqlrecords.
const longestTable = 55

// mysqlTable is a table in MariaDB or MySQL.
type mysqlTable struct {
	*engineurl.MySQL
	name string
}

// sweep counts the rows of the table, at least one, and drops it. If there is no table, it returns an error unless
// the user may drop one, without which a run would leave it.
func (t mysqlTable) sweep(ctx context.Context, remove bool) (n int, err error) {
	db, err := t.DB()
	if err != nil {
		return 0, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM "+t.name).Scan(&n)
	server, ok := errors.AsType[*mysql.MySQLError](err)
	switch {
	case ok && server.Number == engineurl.NoSuchTable: // the rights are checked before it is found that this one does not exist
		_, err = db.ExecContext(ctx, "DROP TABLE IF EXISTS fencelock_"+rand.Text())
	case err == nil && remove:
		_, err = db.ExecContext(ctx, "DROP TABLE "+t.name)
	case err == nil:
		n = max(n, 1) // an empty table may be that of somebody else
	}
	if err == nil {
		return n, nil
	}
	err = fmt.Errorf("%w: %s", driver.ErrUnavailable, t.Hide(err.Error()))
	if strings.Contains(err.Error(), "DROP command denied") {
		err = &engineurl.HintError{Err: err, Hint: "a user with CREATE and DROP, in a database for tests"}
	}
	return n, err
}
