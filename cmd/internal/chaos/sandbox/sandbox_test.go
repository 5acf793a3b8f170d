//go:build unix

package sandbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cmd/internal/chaos/sandbox"
	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/dynamotest"
	"github.com/fencelock/fencelock/internal/testkit/mariadbtest"
	"github.com/fencelock/fencelock/internal/testkit/objecttest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
)

func init() { engineurl.AddAll() }

// TestSandboxesKnowWhatADeadWaiterCosts: a test of a running engine waits longer for a name on some engines.
// Every scheme has a sandbox but mem, whose locks exclude no other process.
func TestSandboxesKnowWhatADeadWaiterCosts(t *testing.T) {
	schemes := engineurl.Beginnings()
	for raw, want := range map[string]sandbox.Sandbox{
		"file:///tmp/x":                     {Dead: sandbox.DeadNothing, Local: true},
		"redis://h":                         {Plain: true},
		"rediss://h":                        {},
		"redis+cluster://h":                 {Plain: true, Dead: sandbox.DeadInTurn},
		"redis+sentinel://h/m?tls=on":       {},
		"redlock://a,b,c":                   {Plain: true, New: true},
		"postgres://h/d":                    {},
		"postgres+rows://h/d":               {Dead: sandbox.DeadLeases},
		"mysql://h/d":                       {Dead: sandbox.DeadLeases},
		"s3://bucket?region=eu-west-1":      {Dead: sandbox.DeadLeases},
		"k8s://n?server=http://127.0.0.1:1": {Dead: sandbox.DeadLeases},
		"redis+unix:///run/redis":           {Plain: true, Local: true},
		"postgresql:///d?host=/run":         {Local: true},
		"mariadb://h/d":                     {Dead: sandbox.DeadLeases},
		"azblob://account/container":        {Dead: sandbox.DeadLeases},
		"gs://bucket":                       {Dead: sandbox.DeadLeases},
		"dynamodb://table?region=eu-west-1": {Dead: sandbox.DeadLeases},
	} {
		schemes = slices.DeleteFunc(schemes, func(beginning string) bool { return strings.HasPrefix(raw, beginning) })
		box, err := sandbox.Of(raw, "p")
		if err != nil {
			t.Fatal(raw, err)
		}
		if box.Dead != want.Dead || box.Plain != want.Plain || box.New != want.New || box.Local != want.Local {
			t.Errorf("%s: %+v", raw, box)
		}
	}
	if !slices.Equal(schemes, []string{"mem:"}) && !slices.Equal(schemes, []string{"mem:", "etcd://"}) { // another test may have added a store
		t.Errorf("these have none: %q", schemes)
	}
}

// TestOf: a sandbox has the name of the URL and the prefix. What the prefix cannot name is refused.
func TestOf(t *testing.T) {
	for raw, want := range map[string]string{
		"file:///tmp/x/":                    "file:///tmp/x/p",
		"redis://h?prefix=a:":               "redis://h?prefix=a%3Ap",
		"redlock://a,b:1,c/2":               "redlock://a,b:1,c/2?prefix=p",
		"mysql://h/d":                       "mysql://h/d?table=fencelock_record_p",
		"postgres+rows://h/d?table=a.b":     "postgres+rows://h/d?table=a.b_p",
		"s3://bucket/team?region=eu-west-1": "s3://bucket/team/p?region=eu-west-1",
	} {
		if box, err := sandbox.Of(raw, "p"); err != nil || box.URL != want {
			t.Errorf("%s: %+v, %v, want %s", raw, box, err, want)
		}
	}
	for _, c := range [][2]string{
		{"file:///tmp/x", "../y"}, {"mysql://h/d", strings.Repeat("p", 60)}, {"mem:", "p"}, {"nonsense://h", "p"},
	} {
		if box, err := sandbox.Of(c[0], c[1]); err == nil {
			t.Errorf("%s, %s: %+v", c[0], c[1], box)
		}
	}
}

// TestClouds acquires a lock in a sandbox of each store, which leaves nothing when it is cleared.
func TestClouds(t *testing.T) {
	for name, value := range map[string]string{"AZURE_STORAGE_KEY": "c2VjcmV0", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "s3cret"} {
		t.Setenv(name, value)
	}
	azure := objecttest.Start(t, func(s *objecttest.Server) { s.Dialect = "azure" })
	dynamo := dynamotest.Start(t)
	for kind, raw := range map[string]string{
		"azblob":   "azblob://account/container/team?endpoint=" + azure.URL + "account",
		"dynamodb": "dynamodb://locks?endpoint=" + dynamo.URL,
	} {
		t.Run(kind, func(t *testing.T) {
			box, err := sandbox.Of(raw, "part")
			if err != nil || box.Hosts[0] != "127.0.0.1" {
				t.Fatalf("%+v, %v", box, err)
			}
			engine, end, err := engineurl.Open(t.Context(), box.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = end() }()
			l, err := fencelock.New(engine, nil).Acquire(t.Context(), "part-job")
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(); err != nil {
				t.Error(err)
			}
			if n, err := box.Count(t.Context()); err != nil || n == 0 {
				t.Errorf("%d objects, %v", n, err)
			}
			if left, err := box.Clear(t.Context()); err != nil || left != 0 {
				t.Errorf("%d objects are left, %v", left, err)
			}
		})
	}
}

// TestForeignTable: what somebody else has in the place of a sandbox is counted, also if it is empty.
func TestForeignTable(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "CREATE TABLE fencelock_record_mine (important int PRIMARY KEY)",
		"CREATE FUNCTION fencelock_record_f_notify() RETURNS int LANGUAGE sql AS 'SELECT 1'")
	maria := mariadbtest.Start(t)
	db, err := sql.Open("mysql", maria.DSN("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE fencelock_record_mine (important int PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	rows, mysql := strings.Replace(pg.DSN(), "postgres:", "postgres+rows:", 1), "mysql://root@"+maria.Addr()+"/test"
	for _, c := range []struct {
		raw, prefix string
		want        int
	}{{rows, "mine", 1}, {rows, "f", 1}, {rows, "other", 0}, {mysql, "mine", 1}, {mysql, "other", 0}} {
		box, err := sandbox.Of(c.raw, c.prefix)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := box.Count(t.Context()); err != nil || n != c.want {
			t.Errorf("%s, %s: %d rows, %v, want %d", c.raw, c.prefix, n, err, c.want)
		}
	}
}

// TestUnreachableStore: an error of a store names its servers, and not the password.
func TestUnreachableStore(t *testing.T) {
	engineurl.AddStore("etcd", func(engineurl.Store) (engineurl.Records, func(), error) {
		return nil, nil, fmt.Errorf("%w: hunter2: no answer", driver.ErrUnavailable)
	})
	box, err := sandbox.Of("etcd://u:hunter2@h1,h2", "mine")
	if err != nil {
		t.Fatal(err)
	}
	_, err = box.Count(t.Context())
	if text := fmt.Sprint(err); !strings.Contains(text, "h1:2379,h2:2379: ") || strings.Contains(text, "hunter2") {
		t.Error(text)
	}
}

// created are records that need not be created.
type created struct{ driver.Records }

func (created) Init(context.Context) error { return nil }

// TestSandboxInAStore: a sandbox is the locks whose names begin with its prefix.
func TestSandboxInAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := memlock.New(nil).Records()
		locks := fencelock.New(recordlock.New(records, nil), nil)
		for _, name := range []string{"mine", "mine too", "theirs"} {
			if err := locks.Do(t.Context(), name, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		closed := 0
		engineurl.AddStore("etcd", func(engineurl.Store) (engineurl.Records, func(), error) {
			return created{records}, func() { closed++ }, nil
		})
		box, err := sandbox.Of("etcd://h1,h2/path", "mine")
		if err != nil || box.Names != "mine" || !slices.Equal(box.Hosts, []string{"h1:2379", "h2:2379"}) {
			t.Fatalf("%+v, %v", box, err)
		}
		if n, err := box.Count(t.Context()); n != 2 || err != nil {
			t.Errorf("the sandbox has %d records, %v", n, err)
		}
		if n, err := box.Clear(t.Context()); n != 0 || err != nil {
			t.Errorf("%d records are left, %v", n, err)
		}
		if list, err := records.List(t.Context(), ""); len(list) != 1 || err != nil {
			t.Errorf("of the other records, %d are left, %v", len(list), err)
		}
		if closed != 3 {
			t.Errorf("%d of 3 connections were closed", closed)
		}
	})
}
