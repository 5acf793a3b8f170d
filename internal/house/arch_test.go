package house_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The rules of the house as tests: who may import whom, how long a file and a
// function may be, and that every package says what it is.

const modulePath = "github.com/fencelock/fencelock"

// room says what the code of one folder may import beside the standard library.
type room struct {
	folder  string   // the folder; with a trailing slash, all folders below it
	imports []string // module paths, or folders of ours; with a trailing slash, all folders below them
	tests   []string // what its tests may import as well; nil means anything
}

// rooms is the plan: a folder obeys the first entry that matches it.
var rooms = []room{
	{folder: "driver", imports: []string{}, tests: []string{"driver", "testing libraries"}},
	{folder: "driver/drivertest", imports: []string{"driver", "."}},
	{folder: "observe/dashboard", imports: []string{".", "cron", "internal/promtext", "internal/watch"}},
	{folder: "driver/drivertest/proc", imports: []string{"driver", "internal/freeze"}},
	{folder: "internal/hold", imports: []string{}},
	{folder: "internal/heldlock", imports: []string{}},
	{folder: "internal/freeze", imports: []string{}},
	{folder: "internal/clock", imports: []string{"internal/hold", "golang.org/x/sys"}},
	{folder: "internal/retry", imports: []string{}},
	{folder: "cmd/internal/chaos/page", imports: []string{"chaostest/history"}},
	{folder: "internal/reexec", imports: []string{}},
	{folder: "internal/deadline", imports: []string{}},
	{folder: "internal/faults", imports: []string{"golang.org/x/sys"}},
	{folder: "internal/gcra", imports: []string{}},
	{folder: "internal/schedule", imports: []string{"internal/hold"}},
	{folder: "memlock", imports: []string{"driver", "internal/gcra", "internal/limits", "internal/retry", "engine libraries"}},
	{folder: "filelock", imports: []string{"driver", "internal/identity", "internal/limits", "internal/retry", "engine libraries", "internal/inspect"}},
	{folder: "redislock", imports: []string{"driver", "internal/limits", "internal/nameindex", "internal/redisconn", "internal/redisfmt", "internal/redisinspect", "internal/retry", "internal/tasks", "redislock/internal/open", "engine libraries", "github.com/redis/rueidis", "internal/inspect"}},
	{folder: "redislock/goredis", imports: []string{"internal/goredisconn", "internal/redisconn", "redislock", "redislock/internal/open", "github.com/redis/go-redis/v9"}},
	{folder: "redlock/goredis", imports: []string{"internal/goredisconn", "internal/redisconn", "redlock", "github.com/redis/go-redis/v9"}},
	{folder: "internal/goredisconn", imports: []string{"driver", "internal/deadline", "internal/redisconn", "internal/retry", "github.com/redis/go-redis/v9"}},
	{folder: "redislock/internal/open", imports: []string{}},
	{folder: "pglock", imports: []string{"driver", "internal/inspect", "internal/retry", "internal/identity", "engine libraries", "github.com/jackc/pgx/v5", "pglock/internal/pipe"}},
	{folder: "pglock/internal/pipe", imports: []string{"internal/deadline", "github.com/jackc/pgx/v5"}},
	{folder: "redlock", imports: []string{"driver", "internal/nameindex", "internal/quorum", "internal/hold", "internal/redisconn", "internal/redisfmt", "internal/redisinspect", "internal/retry", "internal/tasks", "engine libraries", "github.com/redis/rueidis", "internal/inspect"}},
	{folder: "internal/quorum", imports: []string{"internal/hold"}},
	{folder: "election", imports: []string{".", "driver", "internal/retry"}},
	{folder: "cron", imports: []string{".", "driver", "internal/hostname", "internal/recordtext", "internal/retry"}},
	{folder: "cron/schedulers/", imports: []string{".", "cron", "driver", "election", "github.com/go-co-op/gocron/v2", "github.com/google/uuid", "github.com/jonboulle/clockwork", "github.com/robfig/cron/v3"}},
	{folder: "chaostest", imports: []string{"chaostest/history", "internal/faults"}},
	{folder: "chaostest/record", imports: []string{".", "chaostest/history"}},
	{folder: "chaostest/history", imports: []string{"github.com/anishathalye/porcupine", "golang.org/x/sys"}},
	{folder: "semaphore", imports: []string{".", "driver"}},
	{folder: "ratelimit", imports: []string{".", "driver", "internal/gcra"}},
	{folder: "idempotent", imports: []string{".", "driver", "internal/hostname", "internal/recordtext", "internal/retry"}},
	{folder: "idempotent/idempotentpgx", imports: []string{"driver", "idempotent", "github.com/jackc/pgx/v5"}},
	{folder: "optimistic", imports: []string{".", "driver", "internal/retry"}},
	{folder: "optimistic/optimisticpgx", imports: []string{"driver", "optimistic", "github.com/jackc/pgx/v5"}},
	{folder: "fence", imports: []string{".", "internal/heldlock"}},
	{folder: "fence/fencepostgres", imports: []string{"fence", "fence/internal/sqlfloor"}},
	{folder: "fence/fencepgx", imports: []string{"fence", "fence/internal/sqlfloor", "github.com/jackc/pgx/v5"}},
	{folder: "fence/fenceredis", imports: []string{"fence", "fence/internal/redisfloor", "github.com/redis/rueidis"}},
	{folder: "fence/fencegrpc", imports: []string{"fence", "google.golang.org/grpc", "google.golang.org/genproto/googleapis/rpc"}},
	{folder: "fence/fencemysql", imports: []string{"fence", "fence/internal/sqlfloor"}},
	{folder: "fence/fenceobject", imports: []string{"fence", "internal/retry"}},
	{folder: "fence/fencegoredis", imports: []string{"fence", "fence/internal/redisfloor", "github.com/redis/go-redis/v9"}},
	{folder: "cmd/fencelockvet", imports: []string{"cmd/fencelockvet/checks", "golang.org/x/tools"}},
	{folder: "cmd/fencelockvet/checks", imports: []string{"golang.org/x/tools"}},
	{folder: "observe/otelfencelock", imports: []string{".", "observe/lockmetrics", "go.opentelemetry.io/otel"}},
	{folder: "observe/promfencelock", imports: []string{".", "observe/lockmetrics", "github.com/prometheus/client_golang"}},
	{folder: "internal/recordsql", imports: []string{"driver"}},
	{folder: "stores/kuberecords", imports: []string{"driver", "internal/kubeapi", "internal/retry"}},
	{folder: "internal/kubeapi", imports: []string{"driver", "internal/httpcall"}},
	{folder: "internal/cloudlogin", imports: []string{"driver"}},
	{folder: "internal/bucket", imports: []string{"driver", "internal/awslogin", "internal/httpcall"}},
	{folder: "stores/etcdrecords", imports: []string{"driver", "go.etcd.io/etcd/api/v3", "go.etcd.io/etcd/client/v3", "google.golang.org/grpc/codes"}},
	{folder: "stores/natsrecords", imports: []string{"driver", "github.com/nats-io/nats.go"}},
	{folder: "stores/", imports: []string{
		"driver", "internal/awslogin", "internal/bucket", "internal/cloudlogin", "internal/httpcall", "internal/recordsql", "internal/retry", "github.com/jackc/pgx/v5", "golang.org/x/sync",
	}},
	{folder: "internal/awslogin", imports: []string{}},
	{folder: "recordlock", imports: []string{"driver", "internal/clock", "internal/identity", "internal/inspect", "internal/limits", "internal/recordtext", "internal/retry", "internal/tasks", "github.com/google/uuid"}},
	{folder: "fence/internal/redisfloor", imports: []string{"fence", "internal/retry"}},
	{folder: "fence/internal/sqlfloor", imports: []string{}},
	{folder: "fence/internal/guardtest", imports: []string{".", "fence", "memlock", "fence/internal/redisfloor", "internal/faults", "internal/testkit/redistest"}},
	{folder: "observe/lockmetrics", imports: []string{".", "driver", "internal/hold"}},
	{folder: "internal/promtext", imports: []string{}},
	{folder: "internal/identity", imports: []string{"driver", "internal/traceparent"}},
	{folder: "internal/recordtext", imports: []string{}},
	{folder: "internal/hostname", imports: []string{}},
	{folder: "internal/httpcall", imports: []string{}},
	{folder: "internal/redisfmt", imports: []string{"driver", "internal/identity"}},
	{folder: "internal/nameindex", imports: []string{"driver", "internal/tasks"}},
	{folder: "internal/tasks", imports: []string{}},
	{folder: "internal/redisinspect", imports: []string{"driver", "internal/nameindex", "internal/redisconn", "internal/redisfmt", "internal/inspect"}},
	{folder: "internal/inspect", imports: []string{"driver"}},
	{folder: "internal/limits", imports: []string{"driver"}},
	{folder: "internal/traceparent", imports: []string{}},
	{folder: "internal/redisconn", imports: []string{"driver", "internal/deadline", "internal/retry", "github.com/redis/rueidis"}},
	{folder: "internal/watch", imports: []string{"driver", "internal/retry"}},
	{folder: "cmd/internal/chaos", imports: []string{
		".", "driver", "chaostest/history", "cmd/internal/chaos/sandbox", "internal/clock", "internal/reexec", "internal/faults", "internal/retry", "internal/testkit/hosttest", "internal/testkit/mariadbtest", "internal/testkit/pgtest",
		"internal/testkit/redistest", "engine libraries", "github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5",
	}},
	{folder: "internal/testkit/conntest", imports: []string{"internal/redisconn", "internal/faults", "internal/testkit/redistest"}},
	{folder: "internal/testkit/engines", imports: []string{
		"driver", "internal/testkit/hosttest", "internal/testkit/pgtest", "internal/testkit/redistest", "filelock", "pglock", "redislock", "redlock",
		"github.com/jackc/pgx/v5", "github.com/redis/rueidis",
	}},
	{folder: "internal/testkit/explore", imports: []string{"internal/hold"}},
	{folder: "lab/evidence/", imports: []string{"lab/evidence", "internal/testkit/sim"}},
	{folder: "internal/testkit/examtest", imports: []string{".", "driver", "driver/drivertest", "internal/faults", "memlock"}},
	{folder: "internal/testkit/hosttest", imports: []string{}},
	{folder: "internal/testkit/mariadbtest", imports: []string{"internal/freeze", "internal/testkit/hosttest"}},
	{folder: "internal/testkit/nemesistest", imports: []string{
		".", "driver", "chaostest", "chaostest/history", "chaostest/record", "internal/faults", "internal/retry",
	}},
	{folder: "internal/testkit/pgtest", imports: []string{"internal/testkit/hosttest", "github.com/jackc/pgx/v5"}},
	{folder: "lab/picture", imports: []string{}},
	{folder: "lab/picture/", imports: []string{"lab/picture"}},
	{folder: "internal/testkit/ratetest", imports: []string{"internal/gcra", "pgregory.net/rapid"}},
	{folder: "internal/testkit/redistest", imports: []string{"internal/freeze", "internal/testkit/hosttest"}},
	{folder: "internal/testkit/sim", imports: []string{"internal/hold", "internal/quorum"}},
	{folder: "internal/testkit/sim/", imports: []string{"internal/testkit/sim"}},
	{folder: "internal/testkit/verdict", imports: []string{"driver", "fence"}},
	{folder: "internal/testkit/", imports: []string{}},
	{folder: "internal/", imports: []string{"driver", "driver/drivertest", ".", "engine libraries"}},
	{folder: "cmd/internal/demo", imports: []string{".", "driver", "fence", "memlock", "internal/reexec"}},
	{folder: "cmd/internal/engineurl", imports: []string{
		"cmd/internal/termtext", "driver", "filelock", "internal/bucket", "internal/inspect", "internal/kubeapi", "internal/redisconn", "memlock",
		"pglock", "recordlock", "redislock", "redlock", "stores/", "github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5", "github.com/redis/rueidis",
	}},
	{folder: "cmd/internal/supervise", imports: []string{"golang.org/x/sys", "golang.org/x/term"}},
	{folder: "cmd/internal/termtext", imports: []string{}},
	{folder: "cmd/", imports: []string{"anything"}},
	{folder: "lab/", imports: []string{"anything"}},
	{folder: "examples/", imports: []string{"anything"}},
	{folder: ".", imports: []string{"driver", "internal/clock", "internal/deadline", "internal/heldlock", "internal/hold", "internal/hostname", "internal/retry", "internal/schedule", "internal/traceparent", "internal/watch", "golang.org/x/sync"}},
}

// sets are the names the plan uses for several modules at once.
var sets = map[string][]string{
	"engine libraries": {
		"github.com/google/uuid", "golang.org/x/sync", "golang.org/x/sys",
	},
	"testing libraries": {"github.com/google/go-cmp", "pgregory.net/rapid"},
}

// testkit is where lies what only tests use, and what startsServers uses, which does not import
// package testing.
const (
	testkit       = "internal/testkit/"
	startsServers = "cmd/internal/chaos"
)

// mayTest are the folders whose shipped code may import package testing.
var mayTest = []string{
	"chaostest", "driver/drivertest", "driver/drivertest/proc", "fence/internal/guardtest", "internal/testkit/conntest", "internal/testkit/engines", "internal/testkit/examtest", "internal/testkit/explore",
	"internal/testkit/nemesistest", "internal/testkit/dynamotest", "internal/testkit/objecttest", "internal/testkit/verdict",
}

// leaves are the modules of their own that users import. Users upgrade them and the root one by one, so
// their code, other than tests, uses only what the root exports to everybody.
var leaves = []string{"cron/schedulers", "fence/fencegrpc", "observe/otelfencelock", "observe/promfencelock", "stores/etcdrecords", "stores/natsrecords"}

// modules are all modules of their own whose code obeys these rules, too: each in a folder that the plan
// names.
var modules = append(slices.Clone(leaves), "cmd", "lab", "examples/service", "cmd/fencelockvet")

// The laboratory imports the commands and the library, and the commands import the library.
const (
	library = iota
	commands
	laboratory
)

// house tells to which of the three a folder belongs.
func house(folder string) int {
	switch {
	case strings.HasPrefix(folder, "lab/"):
		return laboratory
	case strings.HasPrefix(folder, "cmd/"):
		return commands
	}
	return library
}

// isLeaf reports whether a folder is in one of leaves.
func isLeaf(folder string) bool {
	return slices.ContainsFunc(leaves, func(leaf string) bool { return strings.HasPrefix(folder+"/", leaf+"/") })
}

// sourceFile is one parsed file and the folder it lies in.
type sourceFile struct {
	path, folder string
	test         bool
	fset         *token.FileSet
	file         *ast.File
}

func (s sourceFile) lines() int { return s.fset.File(s.file.Pos()).LineCount() }

// sources returns every Go file of this module and of modules. Who asks changes nothing
// in them.
func sources(t *testing.T) []sourceFile {
	t.Helper()
	all, err := parseAll()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// parseAll parses them, once for all tests.
var parseAll = sync.OnceValues(func() (all []sourceFile, err error) {
	logFolder()
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipFolder(name)
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		s := sourceFile{path: filepath.ToSlash(name), fset: token.NewFileSet()}
		s.folder = path.Dir(s.path)
		s.test = strings.HasSuffix(name, "_test.go")
		s.file, err = parser.ParseFile(s.fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		all = append(all, s)
		return err
	})
	return all, err
})

// skipFolder leaves out what is not code of these modules: hidden folders, test data and
// other modules.
func skipFolder(name string) error {
	base := filepath.Base(name)
	if name == "." {
		return nil
	}
	if base[0] == '.' || base[0] == '_' || base == "testdata" {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && !slices.Contains(modules, filepath.ToSlash(name)) {
		return filepath.SkipDir
	}
	return nil
}

// checkArrow says why a file of folder must not import imported, or nil.
func checkArrow(folder string, test bool, imported string) error {
	i := slices.IndexFunc(rooms, func(r room) bool { return r.matches(folder) })
	if i < 0 {
		return fmt.Errorf("%s: the folder has no place in the plan: add it to rooms in arch_test.go", folder)
	}
	if below := strings.TrimPrefix(imported, modulePath+"/"); below != imported && house(below) > house(folder) {
		return fmt.Errorf("%s must not import %s: the library, the commands and the laboratory only import what stands before them", folder, imported)
	}
	if !test && folder != startsServers && house(folder) < laboratory && !strings.HasPrefix(folder, testkit) && !slices.Contains(mayTest, folder) && strings.HasPrefix(imported, modulePath+"/"+testkit) {
		return fmt.Errorf("%s must not import %s: only tests do", folder, imported)
	}
	if below := strings.TrimPrefix(imported, modulePath+"/"); !test && isLeaf(folder) && slices.Contains(strings.Split(below, "/"), "internal") {
		return fmt.Errorf("%s must not import %s: a module that users import works with every later version of the root, which exports only what is not internal", folder, imported)
	}
	allowed := rooms[i].imports
	if test {
		if rooms[i].tests == nil {
			return nil
		}
		allowed = append(slices.Clone(allowed), rooms[i].tests...)
	}
	if imported == "testing" || strings.HasPrefix(imported, "testing/") {
		if test || slices.Contains(mayTest, folder) {
			return nil
		}
		return fmt.Errorf("%s: %q belongs into tests", folder, imported)
	}
	if standard(imported) || slices.ContainsFunc(allowed, func(a string) bool { return covers(a, imported) }) {
		return nil
	}
	return fmt.Errorf("%s must not import %s", folder, imported)
}

func (r room) matches(folder string) bool {
	if below, ok := strings.CutSuffix(r.folder, "/"); ok {
		return folder == below || strings.HasPrefix(folder, r.folder)
	}
	return folder == r.folder
}

// covers reports whether one entry of the plan allows an import.
func covers(entry, imported string) bool {
	if set, ok := sets[entry]; ok {
		return slices.ContainsFunc(set, func(e string) bool { return covers(e, imported) })
	}
	switch {
	case entry == "anything":
		return true
	case entry == ".":
		return imported == modulePath
	case strings.Contains(strings.SplitN(entry, "/", 2)[0], "."):
		return imported == entry || strings.HasPrefix(imported, entry+"/")
	}
	if strings.HasSuffix(entry, "/") {
		return strings.HasPrefix(imported, modulePath+"/"+entry)
	}
	return imported == modulePath+"/"+entry
}

// standard reports whether an import path belongs to the standard library: those
// have no dot in their first element.
func standard(imported string) bool {
	return !strings.Contains(strings.SplitN(imported, "/", 2)[0], ".")
}

func TestArrows(t *testing.T) {
	for _, s := range sources(t) {
		for _, spec := range s.file.Imports {
			if err := checkArrow(s.folder, s.test, strings.Trim(spec.Path.Value, `"`)); err != nil {
				t.Errorf("%s: %v", s.path, err)
			}
		}
	}
}

// TestArrowsRefuse proves that the check sees wrong arrows at all.
func TestArrowsRefuse(t *testing.T) {
	for _, c := range []struct {
		folder, imported string
		test, want       bool
	}{
		{folder: "driver", imported: "os", want: true},
		{folder: "driver", imported: modulePath, want: false},
		{folder: "driver", imported: modulePath + "/memlock", test: true, want: false},
		{folder: "driver", imported: "github.com/google/uuid", want: false},
		{folder: ".", imported: modulePath + "/driver", want: true},
		{folder: ".", imported: modulePath + "/filelock", want: false},
		{folder: ".", imported: modulePath + "/filelock", test: true, want: true},
		{folder: ".", imported: "github.com/google/uuid", want: false},
		{folder: ".", imported: "testing", want: false},
		{folder: "filelock", imported: modulePath, want: false},
		{folder: "filelock", imported: modulePath + "/memlock", want: false},
		{folder: "filelock", imported: "golang.org/x/sys/unix", want: true},
		{folder: "filelock", imported: "golang.org/x/system", want: false},
		{folder: "memlock", imported: "testing/synctest", want: false},
		{folder: "observe/promfencelock", imported: modulePath + "/observe/lockmetrics", want: true},
		{folder: "observe/promfencelock", imported: modulePath + "/internal/watch", want: false},
		{folder: "cron/schedulers/gocronlock", imported: modulePath + "/internal/retry", want: false},
		{folder: "memlock", imported: "testing/synctest", test: true, want: true},
		{folder: "internal/hold", imported: modulePath + "/driver", want: false},
		{folder: "internal/testkit/conntest", imported: "testing", want: true},
		{folder: "internal/testkit/redistest", imported: "testing", want: false},
		{folder: "cmd/fencelock", imported: modulePath + "/internal/testkit/redistest", want: false},
		{folder: "cmd/fencelock", imported: modulePath + "/internal/testkit/redistest", test: true, want: true},
		{folder: "driver/drivertest", imported: "testing", want: true},
		{folder: "driver/drivertest", imported: modulePath, want: true},
		{folder: "driver/drivertest", imported: modulePath + "/memlock", want: false},
		{folder: "cmd/internal/cli", imported: "github.com/spf13/cobra", want: true},
		{folder: "cmd/fencelock", imported: "testing", want: false},
		{folder: "cmd/internal/supervise", imported: "golang.org/x/sys/unix", want: true},
		{folder: "cmd/internal/supervise", imported: modulePath, want: false},
		{folder: "cmd/internal/supervise", imported: modulePath, test: true, want: true},
		{folder: "cmd/internal/engineurl", imported: modulePath + "/cmd/internal/supervise", want: false},
		{folder: "elsewhere", imported: "os", want: false},
		{folder: "redislock", imported: modulePath + "/cmd/internal/cli", test: true, want: false},
		{folder: "cmd/internal/cli", imported: modulePath + "/lab/picture", test: true, want: false},
		{folder: "lab/board", imported: modulePath + "/cmd/internal/cli", test: true, want: true},
		{folder: "lab/bench", imported: modulePath + "/internal/testkit/redistest", want: true},
	} {
		err := checkArrow(c.folder, c.test, c.imported)
		if got := err == nil; got != c.want {
			t.Errorf("%s (test: %v) imports %s: allowed = %v, want %v", c.folder, c.test, c.imported, got, c.want)
		}
	}
}

// TestCommandWithoutTesting: package testing would add its flags to the command. What tests engines is in
// fencelock-all.
func TestCommandWithoutTesting(t *testing.T) {
	kit := []string{"testing", modulePath + "/internal/testkit", modulePath + "/cmd/internal/chaos", modulePath + "/internal/faults", "github.com/anishathalye/porcupine"}
	for _, way := range reaches(sources(t), "cmd/fencelock", false, kit...) {
		t.Error(way)
	}
	if len(reaches(sources(t), "cmd/internal/cli", true, "testing")) == 0 {
		t.Error("this test does not see that the tests of the command reach package testing")
	}
}

// TestWithoutPgx: who uses the root with an engine on Redis need not fetch the client of
// PostgreSQL, nor that of MariaDB, as `go mod tidy` makes them that looks at the tests of
// what they import. Who uses PostgreSQL need not fetch that of MariaDB.
func TestWithoutPgx(t *testing.T) {
	const pgx, mysql = "github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql"
	all := sources(t)
	for _, folder := range []string{".", "driver", "driver/drivertest", "memlock", "redislock", "redislock/goredis", "redlock"} {
		for _, way := range reaches(all, folder, true, pgx, mysql) {
			t.Error(way)
		}
	}
	for _, folder := range []string{"filelock", "pglock", "fence", "fence/fencepgx", "idempotent", "optimistic", "ratelimit"} {
		for _, way := range reaches(all, folder, true, mysql) {
			t.Error(way)
		}
	}
	if len(reaches(all, "fence/fencemysql", true, mysql)) == 0 {
		t.Error("this test does not see that the tests of fence/fencemysql reach the client of MariaDB")
	}
}

// TestWithoutHeavyModules: users of the root module download no OpenTelemetry, no Prometheus, no
// client of etcd or NATS, no scheduler, and nothing that only commands need. Those of a store download
// no server.
func TestWithoutHeavyModules(t *testing.T) {
	const servers, nats = "go.etcd.io/etcd/server", "github.com/nats-io/nats-server"
	for dir, heavy := range map[string][]string{
		".":                  {"go.opentelemetry.io", "github.com/prometheus", "google.golang.org/grpc", "go.etcd.io", "github.com/nats-io", "gocron", "robfig", "spf13"},
		"stores/etcdrecords": {servers},
		"stores/natsrecords": {nats},
		"cmd":                {servers, nats},
	} {
		for _, name := range []string{"go.mod", "go.sum"} {
			text := readText(t, dir+"/"+name)
			for _, module := range heavy {
				if strings.Contains(text, module) {
					t.Errorf("%s/%s has %s", dir, name, module)
				}
			}
		}
	}
	for name, module := range map[string]string{
		"observe/otelfencelock/go.sum": "go.opentelemetry.io", "observe/promfencelock/go.sum": "github.com/prometheus", "stores/etcdrecords/go.sum": "go.etcd.io",
		"stores/natsrecords/go.sum": "github.com/nats-io", "lab/go.sum": servers,
	} {
		if !strings.Contains(readText(t, name), module) {
			t.Errorf("this test does not see what %s downloads", name)
		}
	}
}

// reaches says by which files a package, its tests if they count, or what they import reach clients.
func reaches(all []sourceFile, folder string, tests bool, clients ...string) (ways []string) {
	seen := map[string]bool{}
	var visit func(folder string, tests bool)
	visit = func(at string, tests bool) {
		for _, s := range all {
			if s.folder != at || s.test && !tests {
				continue
			}
			for _, spec := range s.file.Imports {
				imported := strings.Trim(spec.Path.Value, `"`)
				for _, client := range clients {
					if imported == client || strings.HasPrefix(imported, client+"/") {
						ways = append(ways, fmt.Sprintf("%s reaches %s by %s", folder, imported, s.path))
					}
				}
				next, ours := strings.CutPrefix(imported, modulePath+"/")
				if imported == modulePath {
					next, ours = ".", true
				}
				if ours && !seen[next] {
					seen[next] = true
					visit(next, false)
				}
			}
		}
	}
	visit(folder, tests)
	return ways
}

func TestPackagesAreDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test {
			documented[s.folder] = documented[s.folder] || s.file.Doc.Text() != ""
		}
	}
	for folder, ok := range documented {
		if !ok {
			t.Errorf("%s: no file has a package comment", folder)
		}
	}
}

// The sizes that keep a file readable in one go.
const (
	maxFile     = 500
	maxFunc     = 70
	maxContract = 200 // driver/driver.go is read whole by everybody who writes an engine
)

func TestSizes(t *testing.T) {
	for _, s := range sources(t) {
		limit := maxFile
		if s.path == "driver/driver.go" {
			limit = maxContract
		}
		if n := s.lines(); n > limit && !s.test {
			t.Errorf("%s has %d lines, more than %d", s.path, n, limit)
		}
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			first, last := s.fset.Position(f.Pos()), s.fset.Position(f.End())
			if n := last.Line - first.Line + 1; n > maxFunc && !s.test {
				t.Errorf("%s:%d: %s has %d lines, more than %d", s.path, first.Line, f.Name.Name, n, maxFunc)
			}
		}
	}
}
