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

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// A Part is a part of the locks of a URL that nothing else uses, for tests. On Redis it is all keys
// with a prefix, on PostgreSQL, Kubernetes, etcd and NATS all names with a prefix, on MySQL a table, on
// S3 all objects with a prefix, and on files a subdirectory. Count must be called before the part is
// used.
type Part struct {
	URL   string   // of the part; it may hold a password
	New   bool     // its servers have to be declared new, since nothing is known about them under the prefix
	Names string   // the prefix of names, where they make the part
	Local bool     // the engine makes no connections over a network
	Hosts []string // of the servers, or those of its Sentinels
	Rate  int      // acquires per second that a server can bear which others use; 0 if it is not special

	// sweep counts the keys, rows, objects or files of the part, and deletes them if remove is true.
	sweep func(ctx context.Context, remove bool) (int, error)
}

// Count returns how many keys, rows, objects or files the part has.
func (p *Part) Count(ctx context.Context) (int, error) { return p.sweep(ctx, false) }

// Clear deletes all that the part has. It returns how much of that is left.
func (p *Part) Clear(ctx context.Context) (left int, err error) {
	if _, err := p.sweep(ctx, true); err != nil {
		return 0, err
	}
	return p.Count(ctx)
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
		return &Part{URL: u.String(), Local: true, sweep: folder(dir).sweep}, nil
	case "postgres", "postgresql":
		target, err := parsePostgres(u)
		if err != nil {
			return nil, err
		}
		conn := target.pool.ConnConfig
		p := &Part{URL: raw, Names: prefix, Hosts: []string{conn.Host}, sweep: (&rows{postgresTarget: target, prefix: prefix}).sweep}
		for _, f := range conn.Fallbacks {
			p.Hosts = append(p.Hosts, f.Host)
		}
		p.Local = strings.HasPrefix(conn.Host, "/")
		return p, nil
	case "redis", "rediss", "redis+unix", "redis+sentinel", "redis+cluster", "redlock":
		return redisPart(u, prefix)
	case "mysql", "mariadb":
		return mysqlPart(u, prefix)
	case "s3":
		return s3Part(u, prefix)
	case "k8s":
		return kubePart(u, prefix)
	case "etcd", "nats":
		if open := stores[u.Scheme]; open != nil {
			return storePart(u, open, prefix)
		}
		return nil, fmt.Errorf("%s is not supported here: %s", u.Scheme, InstallAll)
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
	p.sweep = k.sweep
	return p, nil
}

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

func (k keys) sweep(ctx context.Context, remove bool) (n int, err error) {
	for _, c := range k.clients {
		client, err := c.connect(ctx)
		if err != nil {
			return n, err
		}
		defer client.Close()
		err = redisconn.Rueidis(client).Scan(ctx, 0, "*"+redisfmt.Literal(k.prefix)+"*", func(found []string) error {
			found = slices.DeleteFunc(found, func(key string) bool { return !k.has(key) })
			n += len(found)
			for _, key := range found { // one at a time: those of a cluster may be in several slots
				if !remove {
					break
				}
				if err := client.Do(ctx, client.B().Del().Key(key).Build()).Error(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return n, errors.New(c.hide(err.Error()))
		}
	}
	return n, nil
}

// rows are the rows of names with a prefix in PostgreSQL.
type rows struct {
	*postgresTarget
	prefix string
	made   bool // the schema did not exist before: the engine has made it
}

// tables have a row for each name, and a column with it.
var tables = []string{"held", "sharer", "queued", "minimum", "resized"}

// anySchema returns a row if the engine has made its schema.
const anySchema = "SELECT WHERE to_regclass('fencelock.epoch') IS NOT NULL AND $1 <> ''"

// dropUnused drops the schema unless some process uses it.
func dropUnused() string {
	all := append([]string{"record", "rate"}, tables...)
	return fmt.Sprintf(`BEGIN;
LOCK TABLE fencelock.%s;
DO $$ BEGIN
	IF NOT EXISTS (SELECT 1 FROM fencelock.%s) THEN
		SET LOCAL client_min_messages = warning;
		DROP SCHEMA fencelock CASCADE;
	END IF;
END $$;
COMMIT`, strings.Join(all, ", fencelock."), strings.Join(all, " UNION ALL SELECT 1 FROM fencelock."))
}

func (r *rows) sweep(ctx context.Context, remove bool) (n int, err error) {
	conn, err := pgconn.ConnectConfig(ctx, &r.pool.ConnConfig.Config)
	if err != nil {
		return 0, fmt.Errorf("%w: postgres: %s", driver.ErrUnavailable, r.reason(err))
	}
	defer func() { _ = conn.Close(ctx) }()
	run := func(sql string) (found int) { // it does nothing after an error
		if err != nil {
			return 0
		}
		tag, failed := conn.ExecParams(ctx, sql, [][]byte{[]byte(r.prefix)}, nil, nil, nil).Close()
		err = failed
		return int(tag.RowsAffected())
	}
	exists, verb := run(anySchema) > 0, map[bool]string{false: "SELECT", true: "DELETE"}[remove]
	if exists {
		for _, table := range tables {
			n += run(verb + " FROM fencelock." + table + " WHERE starts_with(name, $1)")
		}
	}
	if exists && remove && r.made && err == nil {
		err = conn.Exec(ctx, dropUnused()).Close()
	}
	if err != nil {
		return n, fmt.Errorf("postgres: %s", r.reason(err))
	}
	r.made = r.made || !exists
	return n, nil
}

// folder is a directory.
type folder string

func (f folder) sweep(_ context.Context, remove bool) (n int, err error) {
	if _, err := os.Lstat(string(f)); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	err = filepath.WalkDir(string(f), func(string, os.DirEntry, error) error { n++; return nil })
	if remove {
		err = os.RemoveAll(string(f))
	}
	return n, err
}
