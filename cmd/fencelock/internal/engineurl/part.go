//go:build unix

package engineurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock/driver"
)

// A Part is a part of the locks of a URL that nothing else uses, for tests. On Redis it is all keys
// with a prefix, on PostgreSQL all names with a prefix, and on files a subdirectory. Count must be
// called before the part is used.
type Part struct {
	URL   string   // of the part; it may hold a password
	New   bool     // its servers have to be declared new, since nothing is known about them under the prefix
	Names string   // the prefix of names, where they make the part
	Local bool     // the engine makes no connections over a network
	Hosts []string // of the servers, or those of its Sentinels

	keep keeper
}

// A keeper counts and deletes what is stored in a part.
type keeper interface {
	count(ctx context.Context) (int, error)
	clear(ctx context.Context) error
}

// PartOf returns the part of a URL that a prefix names. It connects to nothing.
func PartOf(raw, prefix string) (*Part, error) {
	u, err := parseURL(raw)
	if err != nil {
		return nil, errors.New("the URL cannot be parsed; write special characters in it as %XX")
	}
	switch u.Scheme {
	case "file":
		dir := filepath.Join(filepath.Clean(u.Path), prefix)
		if strings.ContainsAny(prefix, "/\x00") || strings.HasPrefix(prefix, ".") {
			return nil, fmt.Errorf("%q is not a name for a directory", prefix)
		}
		u.Path = dir
		return &Part{URL: u.String(), Local: true, keep: folder(dir)}, nil
	case "postgres", "postgresql":
		target, err := parsePostgres(u)
		if err != nil {
			return nil, err
		}
		conn := target.pool.ConnConfig
		p := &Part{URL: raw, Names: prefix, Hosts: []string{conn.Host}, keep: &rows{postgresTarget: target, prefix: prefix}}
		for _, f := range conn.Fallbacks {
			p.Hosts = append(p.Hosts, f.Host)
		}
		p.Local = strings.HasPrefix(conn.Host, "/")
		return p, nil
	case "redis", "rediss", "redis+unix", "redis+sentinel", "redis+cluster", "redlock":
		return redisPart(u, prefix)
	}
	return nil, fmt.Errorf("%s has no servers that several processes share", u.Scheme)
}

// redisPart returns a part of the keys. The part of a URL with a prefix begins with it.
func redisPart(u *url.URL, prefix string) (*Part, error) {
	q := u.Query()
	q.Set("prefix", q.Get("prefix")+prefix)
	u.RawQuery = q.Encode()
	p := &Part{URL: u.String(), Local: u.Scheme == "redis+unix", New: q.Get("quarantine") == "on" || u.Scheme == "redlock"}
	k := keys{prefix: q.Get("prefix")}
	if u.Scheme == "redlock" {
		target, err := parseRedlock(u)
		if err != nil {
			return nil, err
		}
		for _, addr := range target.engine.Nodes {
			client := target.redisClient
			client.option.InitAddress = []string{addr}
			k.clients = append(k.clients, client)
		}
	} else {
		target, err := parseRedis(u)
		if err != nil {
			return nil, err
		}
		k.clients = []redisClient{target.redisClient}
	}
	for _, c := range k.clients {
		if !p.Local {
			p.Hosts = append(p.Hosts, c.option.InitAddress...)
		}
	}
	p.keep = k
	return p, nil
}

// Count returns how many keys, rows or files the part has.
func (p *Part) Count(ctx context.Context) (int, error) { return p.keep.count(ctx) }

// Clear deletes all that the part has.
func (p *Part) Clear(ctx context.Context) error { return p.keep.clear(ctx) }

// keys are the keys of a prefix on servers of Redis.
type keys struct {
	clients []redisClient
	prefix  string
}

// has reports whether a key has the prefix. Redlock stores more about the key KEY of a lock under
// names such as fence:{KEY}.
func (k keys) has(key string) bool {
	_, inBraces, _ := strings.Cut(key, ":{")
	return strings.HasPrefix(key, k.prefix) || strings.HasPrefix(inBraces, k.prefix)
}

func (k keys) count(ctx context.Context) (n int, err error) {
	err = k.each(ctx, func(_ rueidis.Client, found []string) error { n += len(found); return nil })
	return n, err
}

func (k keys) clear(ctx context.Context) error {
	return k.each(ctx, func(node rueidis.Client, found []string) error {
		for _, key := range found { // one at a time: those of a cluster may be in several slots
			if err := node.Do(ctx, node.B().Del().Key(key).Build()).Error(); err != nil {
				return err
			}
		}
		return nil
	})
}

// each calls f with the keys that each master has, some at a time.
func (k keys) each(ctx context.Context, f func(node rueidis.Client, found []string) error) error {
	pattern := "*" + strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(k.prefix) + "*"
	for _, c := range k.clients {
		client, err := c.connect(ctx)
		if err != nil {
			return err
		}
		defer client.Close()
		for _, node := range masters(ctx, client) {
			for cursor := uint64(0); ; {
				some, err := node.Do(ctx, node.B().Scan().Cursor(cursor).Match(pattern).Count(1000).Build()).AsScanEntry()
				if err == nil {
					err = f(node, slices.DeleteFunc(some.Elements, func(key string) bool { return !k.has(key) }))
				}
				if err != nil {
					return errors.New(c.hide(err.Error()))
				}
				if cursor = some.Cursor; cursor == 0 {
					break
				}
			}
		}
	}
	return nil
}

// masters returns the masters of a cluster, or the server itself.
func masters(ctx context.Context, client rueidis.Client) (all []rueidis.Client) {
	if client.Mode() != rueidis.ClientModeCluster {
		return []rueidis.Client{client}
	}
	for _, node := range client.Nodes() {
		role, err := node.Do(ctx, node.B().Role().Build()).ToArray()
		if err == nil && len(role) > 0 {
			if s, _ := role[0].ToString(); s == "master" {
				all = append(all, node)
			}
		}
	}
	return all
}

// rows are the rows of names with a prefix in PostgreSQL.
type rows struct {
	*postgresTarget
	prefix string
	made   bool // the schema did not exist before: the engine has made it
}

// tables have a row for each name, and a column with it.
var tables = []string{"held", "sharer", "queued", "minimum", "resized"}

// dropUnused drops the schema unless some process uses it.
const dropUnused = `BEGIN;
LOCK TABLE fencelock.held, fencelock.sharer, fencelock.queued, fencelock.minimum, fencelock.resized, fencelock.record, fencelock.rate;
DO $$ BEGIN
	IF NOT EXISTS (SELECT FROM fencelock.held) AND NOT EXISTS (SELECT FROM fencelock.sharer) AND NOT EXISTS (SELECT FROM fencelock.queued)
		AND NOT EXISTS (SELECT FROM fencelock.minimum) AND NOT EXISTS (SELECT FROM fencelock.resized)
		AND NOT EXISTS (SELECT FROM fencelock.record) AND NOT EXISTS (SELECT FROM fencelock.rate) THEN
		SET LOCAL client_min_messages = warning;
		DROP SCHEMA fencelock CASCADE;
	END IF;
END $$;
COMMIT`

// anySchema returns a row if the engine has made its schema.
const anySchema = "SELECT WHERE to_regclass('fencelock.epoch') IS NOT NULL AND $1 <> ''"

func (r *rows) count(ctx context.Context) (int, error) {
	n, exists, err := r.each(ctx, "SELECT")
	r.made = r.made || err == nil && !exists
	return n, err
}

func (r *rows) clear(ctx context.Context) error {
	_, exists, err := r.each(ctx, "DELETE")
	if err != nil || !exists || !r.made {
		return err
	}
	return r.on(ctx, func(conn *pgconn.PgConn) error { return conn.Exec(ctx, dropUnused).Close() })
}

// each selects or deletes the rows of all tables. It returns how many there are, and whether the
// engine has made its schema.
func (r *rows) each(ctx context.Context, verb string) (n int, exists bool, err error) {
	err = r.on(ctx, func(conn *pgconn.PgConn) error {
		found, err := r.run(ctx, conn, anySchema)
		if exists = found > 0; err != nil || !exists {
			return err
		}
		for _, table := range tables {
			found, err := r.run(ctx, conn, verb+" FROM fencelock."+table+" WHERE starts_with(name, $1)")
			if err != nil {
				return err
			}
			n += found
		}
		return nil
	})
	return n, exists, err
}

// on calls f with a connection.
func (r *rows) on(ctx context.Context, f func(*pgconn.PgConn) error) error {
	conn, err := pgconn.ConnectConfig(ctx, &r.pool.ConnConfig.Config)
	if err != nil {
		return fmt.Errorf("%w: postgres: %s", driver.ErrUnavailable, r.reason(err))
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := f(conn); err != nil {
		return fmt.Errorf("postgres: %s", r.reason(err))
	}
	return nil
}

// run runs a statement with the prefix and returns how many rows it returns or deletes.
func (r *rows) run(ctx context.Context, conn *pgconn.PgConn, sql string) (int, error) {
	tag, err := conn.ExecParams(ctx, sql, [][]byte{[]byte(r.prefix)}, nil, nil, nil).Close()
	return int(tag.RowsAffected()), err
}

// folder is a directory.
type folder string

func (f folder) count(context.Context) (n int, err error) {
	err = filepath.WalkDir(string(f), func(string, os.DirEntry, error) error { n++; return nil })
	if _, none := os.Lstat(string(f)); errors.Is(none, os.ErrNotExist) {
		return 0, nil
	}
	return n, err
}

func (f folder) clear(context.Context) error { return os.RemoveAll(string(f)) }
