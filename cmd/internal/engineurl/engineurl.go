//go:build unix

// Package engineurl opens the engine of a URL, as given by --url and FENCELOCK_URL:
//
//	file:///path            a directory of this host; ?network=allow, ?group=NAME
//	mem:                    this process only, for experiments
//	redis://host:port/db    one Redis; rediss:// with TLS, redis+unix:///socket?db=N
//	redis+sentinel://h1,h2,h3/master/db
//	redis+cluster://h1,h2
//	redlock://h1,h2,h3/db   an odd number of independent masters
//	postgres://host/db      as libpq takes it, postgresql:// too
//	mysql://host/db         records in a table of MySQL or MariaDB, mariadb:// too
//	s3://bucket/prefix      objects in a bucket of S3 or another object store
//	k8s://namespace         Lease objects of Kubernetes; k8s:// is the namespace of the pod
//	etcd://h1,h2,h3/prefix  records in etcd, in fencelock-all only
//	nats://h1,h2,h3/bucket  records in NATS JetStream, in fencelock-all only
//
// The parameters of Redis set fields of redislock.Config and of its client. Durations have the
// syntax of Go:
//
//	timeout=3s              timeout of a request, 100ms to 1m
//	prefix=TEXT             prefix of every key
//	eviction=allow          accept a server that may evict keys, and with them locks
//	quarantine=on           a server that may have lost locks grants none for a while
//	max-ttl=30s             with quarantine: the longest TTL
//	replica-lag=10s         with quarantine: the servers' min-replicas-max-lag
//	marker-life=2160h       with quarantine: how long the marker of an idle server is kept
//	retention=168h          how long the last token of a name is kept
//	min-replicas=N          a lock counts when N replicas have it too
//	tls=on ca= cert= key=   TLS, and files in PEM; rediss:// is tls=on
//	sentinel-user= sentinel-password=
//
// Redlock takes timeout, prefix, eviction=allow, quarantine=off, max-ttl and the parameters of TLS,
// for all its servers. PostgreSQL has the following ones, which set fields of pglock.Config. It
// passes any other parameter to the client or the server:
//
//	pooler=allow            accept a pooler, which must be in session mode
//	max-ttl=30s             the longest TTL
//	max-waiters=16          connections for waiting requests
//	break-wait=2s           how long break waits for holders to release
//
// MySQL and MariaDB have these:
//
//	table=NAME              the table; fencelock_record by default
//	tls=on                  TLS; tls=skip-verify does not verify the certificate
//	timeout=4s              timeout of the first connection
//
// S3 has these. The login is that of Amazon's tools: variables, files, or a role.
//
//	region=eu-west-1        the region of the bucket; AWS_REGION by default
//	endpoint=https://host   a store other than Amazon's
//	timeout=5s              timeout of a request, with its attempts
//
// Kubernetes has these. Without a server, the service account of the pod is used:
//
//	server=URL              the API server
//	ca= token-file=         files with its certificates and with a token
//	timeout=5s              timeout of a request
//
// The clients of etcd and NATS are in the command fencelock-all, which calls [AddStore]. Their URLs
// have timeout=2s, of each request, and tls=on, ca=, cert= and key= as those of Redis have. NATS also
// has these:
//
//	replicas=3              servers that store a bucket that is created; 1 by default
//	creds=FILE              a credentials file
//
// A parameter that is unknown, given twice or invalid is refused: a misspelt one would have no
// effect.
//
// URLs hold passwords, and parsers and clients repeat them in errors. So this package writes the
// texts of errors itself, or removes passwords from them.
package engineurl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/cmd/internal/termtext"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
	"github.com/fencelock/fencelock/memlock"
)

// scheme is one kind of URL.
type scheme struct {
	// open opens the engine of a URL, and returns what closes it. An error is a *HintError, or means
	// that the URL does not have the form.
	open func(context.Context, *url.URL, means) (driver.Engine, func() error, error)
	form string // what its URLs look like
}

// schemes has every scheme. No other code of the command lists the engines.
var schemes = map[string]scheme{
	"file":           {openFile, "file:///path[?network=allow][&group=NAME]"},
	"mem":            {openMemory, "mem:"},
	"redis":          {openRedis, "redis://[user:password@]host[:port][/db]"},
	"rediss":         {openRedis, "rediss://[user:password@]host[:port][/db]"},
	"redis+unix":     {openRedis, "redis+unix://[user:password@]/path/of/socket[?db=N]"},
	"redis+sentinel": {openRedis, "redis+sentinel://[user:password@]sentinel1,sentinel2,.../master[/db]"},
	"redis+cluster":  {openRedis, "redis+cluster://[user:password@]host1,host2,..."},
	"redlock":        {openRedlock, "redlock://[user:password@]host1,host2,host3[/db]"},
	"postgres":       {openPostgres, "postgres://[user:password@]host[:port]/database"},
	"postgresql":     {openPostgres, "postgresql://[user:password@]host[:port]/database"},
	"mysql":          {openMySQL, "mysql://[user:password@]host[:port]/database[?table=NAME]"},
	"k8s":            {openKube, "k8s://namespace[?server=URL&ca=FILE&token-file=FILE]"},
	"mariadb":        {openMySQL, "mariadb://[user:password@]host[:port]/database[?table=NAME]"},
	"s3":             {openS3, "s3://bucket[/prefix][?region=NAME][&endpoint=https://host]"},
}

// beginnings is what URLs may start with.
var beginnings = []string{
	"file:///", "redis://", "rediss://", "redis+unix:///", "redis+sentinel://", "redis+cluster://",
	"redlock://", "postgres://", "mysql://", "mariadb://", "s3://", "k8s://", "mem:",
}

// Beginnings returns what URLs may start with, for completion.
func Beginnings() []string { return slices.Clone(beginnings) }

// Open opens the engine of a URL, and returns a function that closes it within half a second. An
// empty URL means [DefaultDir]. Open connects to a single Redis, PostgreSQL, MySQL or object store,
// for some seconds at most, so that errors are found early. It does not connect to the servers of
// Redlock, since some of them may be down.
//
// An error is a single line without passwords. It is ErrUnavailable if the server is unreachable,
// ErrConfig if the server refuses us, and the error of ctx if ctx has ended. Any other error means
// that the URL is wrong. A [HintError] says what to do.
//
// The engine logs to log, if that is not nil.
func Open(ctx context.Context, raw string, log *slog.Logger) (engine driver.Engine, closeEngine func() error, err error) {
	return open(ctx, raw, means{log: log})
}

// OpenThrough is [Open] with connections made by dial, and without a log. Unix sockets have no
// address and are not affected.
func OpenThrough(ctx context.Context, raw string, dial dialer) (engine driver.Engine, closeEngine func() error, err error) {
	return open(ctx, raw, means{dial: dial})
}

// means are what an engine uses of the program.
type means struct {
	dial dialer       // nil means that of the client
	log  *slog.Logger // nil means none
}

func open(ctx context.Context, raw string, m means) (engine driver.Engine, closeEngine func() error, err error) {
	given := raw
	raw = strings.TrimSpace(raw) // a secret from a file often ends with a newline
	if given != "" && raw == "" {
		return nil, nil, errors.New("the URL is blank; unset it for locks in files, or write redis://host:port, say")
	}
	if raw == "" {
		dir, err := DefaultDir(os.Geteuid(), os.Getenv)
		if err != nil {
			return nil, nil, err
		}
		return filelock.New(dir, &filelock.Config{Poll: true, BreakWait: breakWait}), nothingToClose, nil
	}
	if strings.HasPrefix(raw, `"`) || strings.HasPrefix(raw, "'") {
		return nil, nil, errors.New("the URL begins with a quotation mark; remove it, which docker --env-file, for example, passes on")
	}
	u, err := parseURL(raw)
	if err != nil {
		// The error of the parser may contain a piece of a password.
		return nil, nil, errors.New("the URL cannot be parsed; write special characters in it as %XX")
	}
	if u.Scheme == "" {
		if strings.ContainsAny(raw, "@?#") { // it may contain a password
			return nil, nil, errors.New("the URL has no scheme; write redis://host:port, say, or file:///path for a directory")
		}
		return nil, nil, fmt.Errorf("%s: the URL has no scheme; write file:///path for a directory", termtext.Word(raw))
	}
	s, ok := schemes[u.Scheme]
	if port, isPort := strings.CutPrefix(raw, u.Scheme+":"); !ok && isPort && digits(port) {
		return nil, nil, fmt.Errorf("%s: the URL has no scheme; write redis://%[1]s or postgres://%[1]s", termtext.Word(raw))
	}
	if _, client := storeForms[u.Scheme]; !ok && client {
		return nil, nil, &HintError{Err: fmt.Errorf("%s: this program has no client for it, fencelock-all has", u.Scheme), Hint: InstallAll}
	}
	if !ok {
		known := slices.Sorted(maps.Keys(schemes))
		return nil, nil, fmt.Errorf("%s: unknown scheme%s (known: %s)",
			termtext.Word(u.Scheme), termtext.Suggest(u.Scheme, known, "; did you mean %s?"), strings.Join(known, ", "))
	}
	engine, closeEngine, err = s.open(ctx, u, m)
	if _, explained := errors.AsType[*HintError](err); err != nil && !explained && ctx.Err() == nil {
		err = &HintError{Err: fmt.Errorf("%s: %w", u.Scheme, err), Hint: s.form + "; write special characters of a password as %XX"}
	}
	return engine, closeEngine, err
}

// parseURL is url.Parse, and also accepts a list of hosts, which it stores in Host unchanged.
// url.Parse refuses such a list, since it takes the text after a colon for a port.
func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	scheme, rest, ok := strings.Cut(raw, "://")
	if err == nil || !ok {
		return u, err
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	start := strings.LastIndex(rest[:end], "@") + 1
	hosts := rest[start:end]
	if !strings.Contains(hosts, ",") {
		return nil, err
	}
	if u, err = url.Parse(scheme + "://" + rest[:start] + "hosts" + rest[end:]); err == nil {
		u.Host = hosts
	}
	return u, err
}

// Parameter returns a parameter of a URL, or "".
func Parameter(raw, name string) string {
	u, err := parseURL(raw)
	if err != nil {
		return ""
	}
	return u.Query().Get(name)
}

// DefaultDir returns the directory of the locks if there is no URL. Each user has a different one,
// so users do not exclude each other. env is os.Getenv or a substitute.
func DefaultDir(uid int, env func(string) string) (string, error) {
	state, home := env("XDG_STATE_HOME"), env("HOME")
	switch {
	case uid == 0:
		return "/var/lib/fencelock", nil
	case filepath.IsAbs(state):
		return filepath.Join(state, "fencelock"), nil
	case filepath.IsAbs(home):
		return filepath.Join(home, ".local", "state", "fencelock"), nil
	}
	return "", errors.New("no home directory to keep locks in; set FENCELOCK_URL=file:///path")
}

// breakWait is how long break waits for a holder to release before it kills the holder. It is
// longer than run takes by default to end its command, and elect to run --on-lose after that.
const breakWait = 20 * time.Second

// openFile opens the engine of a directory. The first lock creates the directory.
func openFile(_ context.Context, u *url.URL, _ means) (driver.Engine, func() error, error) {
	switch {
	case u.Host != "" || u.User != nil: // file://path is a host named "path" to every parser
		return nil, nil, fmt.Errorf("file://%s names a host; write file:///path (three slashes)", Redact(termtext.Word(u.Host)))
	case !strings.HasPrefix(u.Path, "/"):
		return nil, nil, errors.New("the path must be absolute")
	case filepath.Clean(u.Path) == "/":
		return nil, nil, errors.New("the URL names no directory")
	case u.Fragment != "":
		return nil, nil, errors.New("the URL has a fragment; write # in a path as %23")
	}
	q, err := parseKnown(u, "network", "group")
	if err != nil {
		return nil, nil, err
	}
	config := filelock.Config{AllowNetwork: q.only("network", "allow"), Group: q.Get("group"), Poll: true, BreakWait: breakWait}
	return filelock.New(filepath.Clean(u.Path), &config), nothingToClose, q.err
}

// openMemory opens an engine that excludes no other process.
func openMemory(_ context.Context, u *url.URL, _ means) (driver.Engine, func() error, error) {
	if u.Opaque != "" || u.Host != "" || u.User != nil || u.Path != "" {
		return nil, nil, errors.New("write nothing after the colon")
	}
	_, err := parseKnown(u)
	return memlock.New(nil), nothingToClose, err
}

// nothingToClose closes an engine without connections.
func nothingToClose() error { return nil }

// digits reports whether s begins with digits, as the rest of host:port/path does.
func digits(s string) bool {
	s, _, _ = strings.Cut(s, "/")
	return s != "" && strings.Trim(s, "0123456789") == ""
}
