//go:build unix

package sqlrecords_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/optimistic"
	"github.com/fencelock/fencelock/ratelimit"
	"github.com/fencelock/fencelock/stores/sqlrecords"
)

func TestRegister(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, s *server) {
		for name, test := range map[string]func(*testing.T, *server){
			"answer lost": answerLost, "restored": restored, "server refuses": serverRefuses, "row in use": rowInUse,
			"set up": setUp, "select limit": selectLimit, "clocks": clocks, "sweep": sweep, "users": users, "mutants": mutants, "together": together, "prefixes": prefixes,
		} {
			t.Run(name, func(t *testing.T) { test(t, s) })
		}
	})
}

// swap is a swap that should succeed.
func swap(t *testing.T, r driver.Records, key, value, version string, ttl time.Duration) string {
	t.Helper()
	next := ""
	within(t, func(ctx context.Context) (err error) {
		next, err = r.Swap(ctx, key, []byte(value), version, ttl)
		return err
	})
	return next
}

// get reads a record.
func get(t *testing.T, r driver.Records, key string) (rec driver.Record) {
	t.Helper()
	within(t, func(ctx context.Context) (err error) {
		rec, err = r.Get(ctx, key)
		return err
	})
	return rec
}

// answerLost: a swap that the server has made, and whose answer was lost, has an unknown
// outcome. It is no conflict, and is not made twice.
func answerLost(t *testing.T, s *server) {
	proxy, err := faults.NewProxy(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	with := settings{"default_query_exec_mode": "simple_protocol"}
	if s.dialect == sqlrecords.MySQL {
		with = settings{"interpolateParams": "true"}
	}
	table := s.table(t)
	far := sqlrecords.New(s.open(t, s.dsn(proxy.Addr(), with)), s.dialect, &sqlrecords.Config{Table: table})
	near := s.records(t, table, nil)
	version := ""
	for value, statement := range map[string]string{"inserted": "INSERT", "updated": "UPDATE"} {
		if statement == "UPDATE" {
			version = swap(t, near, value, "", "", 0)
		}
		cut := proxy.SwallowReply(statement)
		_, err := far.Swap(t.Context(), value, []byte(value), version, 0)
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConflict) {
			t.Errorf("a swap whose answer was lost: got %v, want ErrUnavailable", err)
		}
		<-cut
		if got := string(get(t, near, value).Value); got != value {
			t.Errorf("the record of %q is %q", value, got)
		}
		if _, err := far.Swap(t.Context(), value, []byte(value), version, 0); !errors.Is(err, driver.ErrConflict) {
			t.Errorf("another swap from the same version: got %v, want ErrConflict", err)
		}
		version = ""
	}
}

// restored: versions that were given do not come again when the rows of a dump are put back.
func restored(t *testing.T, s *server) {
	table := s.table(t)
	r := s.records(t, table, nil)
	first := swap(t, r, "a", "one", "", 0)
	s.exec(t, "CREATE TABLE dump AS SELECT * FROM "+table)
	second := swap(t, r, "a", "two", first, 0)
	s.exec(t, "DELETE FROM "+table, "INSERT INTO "+table+" SELECT * FROM dump")
	if _, err := r.Swap(t.Context(), "a", []byte("late"), second, 0); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("a swap from a version that the dump does not have: got %v, want ErrConflict", err)
	}
	third := swap(t, r, "a", "three", first, 0)
	s.exec(t, "DELETE FROM "+table)
	if _, err := r.Swap(t.Context(), "a", nil, third, 0); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("a swap from the version of a row that was deleted: got %v, want ErrConflict", err)
	}
	fourth := swap(t, r, "a", "three", "", 0)
	if all := []string{first, second, third, fourth}; len(slices.Compact(slices.Sorted(slices.Values(all)))) != 4 {
		t.Errorf("a version came again: %q", all)
	}
}

// serverRefuses: what the server rolls back as the victim of a deadlock, or of a wait that
// took too long, is made again.
func serverRefuses(t *testing.T, s *server) {
	for _, code := range []string{s.pick("1213", "40P01"), s.pick("1205", "55P03"), s.pick("1020", "40001")} {
		table := s.table(t)
		r := s.records(t, table, nil)
		version := swap(t, r, "a", "one", "", 0)
		fill := strings.NewReplacer("{table}", table, "{code}", code).Replace
		if s.dialect == sqlrecords.MySQL { // the counter is of a kind that is not rolled back
			s.exec(t, fill("CREATE TABLE tries_{table} (n INT) ENGINE = MyISAM"), fill("INSERT INTO tries_{table} VALUES (0)"),
				fill(`CREATE TRIGGER victim_{table} BEFORE UPDATE ON {table} FOR EACH ROW BEGIN
					UPDATE tries_{table} SET n = n + 1;
					IF (SELECT n FROM tries_{table}) <= 2 THEN SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = {code}; END IF;
				END`))
		} else {
			s.exec(t, fill("CREATE SEQUENCE tries_{table}"), fill(`CREATE FUNCTION victim_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF nextval('tries_{table}') <= 2 THEN RAISE EXCEPTION USING ERRCODE = '{code}'; END IF;
					RETURN NEW;
				END $$`), fill("CREATE TRIGGER victim BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION victim_{table}()"))
		}
		swap(t, r, "a", "two", version, 0)
		if n := s.number(t, fill(s.pick("SELECT n FROM tries_{table}", "SELECT last_value FROM tries_{table}"))); n != 3 {
			t.Errorf("after two failures with %s the swap was made %d times, want 3", code, n)
		}
	}
}

// rowInUse: a swap of a row that somebody else has locked is ErrUnavailable when the time
// is up, and succeeds once the row is free.
func rowInUse(t *testing.T, s *server) {
	table := s.table(t)
	quick := settings{"lock_timeout": "50ms"}
	if s.dialect == sqlrecords.MySQL {
		quick = settings{"innodb_lock_wait_timeout": "0"}
	}
	r := s.records(t, table, quick)
	version, other := swap(t, r, "a", "one", "", 0), swap(t, r, "b", "one", "", 0)
	tx, err := s.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() // done before that, if the test gets on
	if _, err := tx.Exec("UPDATE " + table + " SET value = ''"); err != nil {
		t.Fatal(err)
	}
	for limit := 100 * time.Millisecond; ; limit *= 2 { // until the server has answered in time
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := r.Swap(ctx, "a", []byte("two"), version, 0)
		cancel()
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConflict) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("while the row is locked: got %v, want ErrUnavailable", err)
		}
		if text := err.Error(); strings.Contains(text, "1205") || strings.Contains(text, "55P03") {
			break
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(200*time.Millisecond, func() { cancel(driver.ErrLost) })
	if _, err := r.Swap(ctx, "a", []byte("two"), version, 0); !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("under a context that was cancelled for a reason: got %v, want ErrUnavailable and context.Canceled", err)
	}
	done := make(chan error, 1)
	go func() { // ends when the row is free
		_, err := r.Swap(t.Context(), "b", []byte("two"), other, 0) // that of a may still be made
		done <- err
	}()
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("once the row is free: %v", err)
	}
}

// setUp: what no other try would mend is ErrConfig.
func setUp(t *testing.T, s *server) {
	table := s.table(t)
	s.exec(t, "CREATE TABLE other (n INT)", s.pick("CREATE USER reader@'%'", "CREATE ROLE reader LOGIN"),
		"GRANT SELECT ON "+table+" TO "+s.pick("reader@'%'", "reader"))
	of := func(db *sql.DB, table string) *sqlrecords.Records {
		return sqlrecords.New(db, s.dialect, &sqlrecords.Config{Table: table})
	}
	dsn := s.dsn(s.addr, nil)
	reader := of(s.open(t, strings.Replace(dsn, s.pick("root@", "postgres@"), "reader@", 1)), table)
	all := map[string]*sqlrecords.Records{
		"no table": of(s.db, "nowhere"), "columns": of(s.db, "other"), "rights": reader, "table name": of(s.db, "a; b"),
		"login":   of(s.open(t, strings.Replace(dsn, "/"+s.database+"?", "/nowhere?", 1)), table),
		"dialect": sqlrecords.New(s.db, 0, nil), "reserved word": of(s.db, "order"),
	}
	long := of(s.db, strings.Repeat("n", 56)) // PostgreSQL would cut it, or that of its index, and mix up two tables
	if err := long.Init(t.Context()); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("a long name of a table: got %v, want ErrConfig", err)
	}
	within(t, of(s.db, strings.Repeat("n", 55)).Init)
	if err := of(s.db, "nowhere.records").Init(t.Context()); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("a table in a schema that is not there: got %v, want ErrConfig", err)
	}
	if s.dialect == sqlrecords.MySQL {
		all["autocommit"] = s.records(t, table, settings{"autocommit": "0"})
		all["character sets"] = s.records(t, table, settings{"collation_connection": "'utf8mb3_unicode_ci'"}) // a value would lose bytes
	} else {
		all["bytes"] = s.records(t, table, settings{"bytea_output": "escape", "default_query_exec_mode": "exec"}) // pgx could not read
	}
	for name, r := range all {
		if _, err := r.Swap(t.Context(), "a", nil, "", 0); !errors.Is(err, driver.ErrConfig) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrConfig", name, err)
		}
	}
	get(t, reader, "a")
	if n := s.number(t, "SELECT COUNT(*) FROM "+table); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
	qualified := of(s.db, s.pick("records", "public")+".own")
	within(t, qualified.Init)
	within(t, qualified.Init)
	swap(t, qualified, "a", "", "", 0)
	if n := s.number(t, "SELECT COUNT(*) FROM own"); n != 1 {
		t.Errorf("%d rows in a table of another name, want 1", n)
	}
	byDefault := sqlrecords.New(s.db, s.dialect, nil)
	s.exec(t, byDefault.Schema()...)
	swap(t, byDefault, "a", "", "", 0)
	if n := s.number(t, "SELECT COUNT(*) FROM fencelock_record"); n != 1 {
		t.Errorf("%d rows in the table of no other name, want 1", n)
	}
}

// selectLimit: MySQL's sql_select_limit hides no records.
func selectLimit(t *testing.T, s *server) {
	if s.dialect != sqlrecords.MySQL {
		return
	}
	table := s.table(t)
	for _, limit := range []string{"0", "1"} {
		r := s.records(t, table, settings{"sql_select_limit": limit})
		for i := range 5 {
			swap(t, r, fmt.Sprint(limit, i), "", "", 0)
			if rec := get(t, r, fmt.Sprint(limit, i)); rec.Version == "" {
				t.Errorf("sql_select_limit=%s: a record is not found", limit)
			}
		}
		if list, err := r.List(t.Context(), limit); err != nil || len(list) != 5 {
			t.Errorf("sql_select_limit=%s: List returns %d of 5 records, %v", limit, len(list), err)
		}
		if _, _, err := r.Clock(t.Context()); err != nil {
			t.Errorf("sql_select_limit=%s: %v", limit, err)
		}
	}
}

// clocks: a record expires by the server's clock, in whichever time zone a client is.
func clocks(t *testing.T, s *server) {
	table := s.table(t)
	zone := s.pick("time_zone", "TimeZone")
	east := s.records(t, table, settings{zone: s.pick("'+13:00'", "Pacific/Kiritimati")})
	west := s.records(t, table, settings{zone: s.pick("'-12:00'", "Etc/GMT+12")})
	version := swap(t, east, "a", "one", "", time.Hour)
	if rec := get(t, west, "a"); rec.Version != version {
		t.Errorf("in the west there is %+v, want version %q", rec, version)
	}
	before := time.Now()
	for _, r := range []*sqlrecords.Records{east, west} {
		earliest, latest, err := r.Clock(t.Context())
		if err != nil || earliest.Before(before.Add(-time.Second)) || latest.After(time.Now().Add(time.Second)) {
			t.Errorf("the clock shows %v to %v, %v, and here it is %v", earliest, latest, err, time.Now())
		}
	}
}

// sweep: rows that expired some time ago go, and no others.
func sweep(t *testing.T, s *server) {
	table := s.table(t)
	r := s.records(t, table, nil)
	swap(t, r, "kept", "", "", time.Hour)
	swap(t, r, "for ever", "", "", 0)
	swap(t, r, "just expired", "", "", time.Microsecond)
	swap(t, r, "old", "", "", time.Hour)
	s.exec(t, "UPDATE "+table+" SET expires = expires - 3720000000 WHERE record_key = 'old'")
	r.Sweep()
	swap(t, r, "new", "", "", 0)
	if n := s.number(t, "SELECT COUNT(*) FROM "+table); n != 4 {
		t.Errorf("%d rows after a sweep, want 4", n)
	}
	swap(t, r, "old", "", "", 0)
	swap(t, r, "just expired", "", "", 0)

	// More than what goes at once goes with the swaps that follow.
	rows := make([]string, 2500)
	for i := range rows {
		rows[i] = fmt.Sprintf("('many %d', 'v', '', 0)", i)
	}
	s.exec(t, "INSERT INTO "+table+" (record_key, version, value, expires) VALUES "+strings.Join(rows, ", "))
	r.Sweep()
	for range 3 {
		swap(t, r, "brief", "", "", time.Microsecond)
	}
	if n := s.number(t, "SELECT COUNT(*) FROM "+table+" WHERE expires = 0"); n != 0 {
		t.Errorf("%d of 2,500 rows that expired long ago are left after three swaps", n)
	}
}

// users: what stands on records works on these.
func users(t *testing.T, s *server) {
	r := s.records(t, s.table(t), nil)
	store := optimistic.New(r, nil)
	const clients, each = 4, 5
	done := make(chan error, clients)
	for range clients {
		go func() { // ends with its updates
			var err error
			for range each {
				_, more := store.Update(t.Context(), "sum", func(_ context.Context, old []byte) ([]byte, error) {
					n := 0
					fmt.Sscan(string(old), &n)
					return fmt.Append(nil, n+1), nil
				})
				err = errors.Join(err, more)
			}
			done <- err
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := string(get(t, r, "optimistic/sum").Value); got != fmt.Sprint(clients*each) {
		t.Errorf("%d updates made it %s", clients*each, got)
	}
	jobs, runs := idempotent.New(fencelock.New(memlock.New(nil), nil), r, nil), 0
	for range 2 {
		got, err := idempotent.Do(t.Context(), jobs, "job", func(context.Context) (string, error) {
			runs++
			return "done", nil
		})
		if err != nil || got != "done" || runs != 1 {
			t.Errorf("the job returned %q, %v, after %d runs", got, err, runs)
		}
	}
	mails := ratelimit.New(ratelimit.OnRecords(r), "mails", ratelimit.Limit{Events: 1, Per: 1000 * time.Hour, Burst: 2}, nil)
	granted := 0
	for range 4 {
		got, err := mails.Allow(t.Context(), "user")
		if err != nil {
			t.Fatal(err)
		}
		if got.OK {
			granted++
		}
	}
	if granted != 2 {
		t.Errorf("%d of a burst of 2 were granted", granted)
	}
}

// rules says where the records of an engine do not do what it must.
func rules(ctx context.Context, r *sqlrecords.Records) error {
	first, err := r.Swap(ctx, "a", []byte("one"), "", time.Hour)
	if err != nil {
		return err
	}
	if _, err := r.Swap(ctx, "a", []byte("two"), "", time.Hour); !errors.Is(err, driver.ErrConflict) {
		return fmt.Errorf("a second first: %v", err)
	}
	second, err := r.Swap(ctx, "a", []byte("two"), first, time.Hour)
	if err != nil {
		return err
	}
	if _, err := r.Swap(ctx, "a", []byte("three"), first, time.Hour); !errors.Is(err, driver.ErrConflict) {
		return fmt.Errorf("from the version before: %v", err)
	}
	if rec, err := r.Get(ctx, "a"); err != nil || rec.Version != second || string(rec.Value) != "two" {
		return fmt.Errorf("%+v, %v", rec, err)
	}
	brief, err := r.Swap(ctx, "brief", nil, "", time.Microsecond)
	if err != nil {
		return err
	}
	if rec, err := r.Get(ctx, "brief"); err != nil || rec.Version != "" {
		return fmt.Errorf("after it expired: %+v, %v", rec, err)
	}
	if list, err := r.List(ctx, ""); err != nil || len(list) != 1 {
		return fmt.Errorf("%+v, %v, want the one that stands", list, err)
	}
	if list, err := r.List(ctx, "b"); err != nil || len(list) != 0 {
		return fmt.Errorf("by a prefix: %+v, %v", list, err)
	}
	if _, err := r.Swap(ctx, "brief", nil, brief, time.Hour); !errors.Is(err, driver.ErrConflict) {
		return fmt.Errorf("from a version that expired: %v", err)
	}
	_, err = r.Swap(ctx, "brief", nil, "", time.Hour)
	return err
}

// mutants: without one of its conditions, records do not do what it must.
func mutants(t *testing.T, s *server) {
	if err := rules(t.Context(), s.records(t, s.table(t), nil)); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]struct{ statement, condition, instead string }{
		"swaps from any version":        {"update", `AND version = (\?|\$5)`, "AND (version = $1 OR TRUE)"},
		"swaps from what has expired":   {"update", ` AND expires > .*`, ""},
		"takes over what stands":        {"revive", ` AND expires <= .*`, ""},
		"shows what has expired":        {"get", ` AND expires > .*`, ""},
		"lists what has expired":        {"list", `AND expires > .* ORDER`, "ORDER"},
		"lists what comes before":       {"list", `record_key >= (\?|\$1)`, "(record_key >= $1 OR TRUE)"},
		"leaves what has expired there": {"revive", `expires <= .*`, "FALSE"},
	} {
		r := s.records(t, s.table(t), nil)
		if !r.Break(m.statement, m.condition, m.instead) {
			t.Errorf("%s: changes nothing", name)
		}
		err := rules(t.Context(), r)
		if err == nil || code(err) {
			t.Errorf("%s: %v, want it to be found out", name, err)
		}
		t.Log(name, ": ", err)
	}
}

// code is whether an error is one of the server's, which does not understand a mutant.
func code(err error) bool {
	return errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig)
}

// together: many processes may make the table at once.
func together(t *testing.T, s *server) {
	const clients = 8
	pools := make([]*sql.DB, clients)
	for i := range pools {
		pools[i] = s.open(t, s.dsn(s.addr, nil))
	}
	for round := range 5 {
		done := make(chan error, clients)
		for _, db := range pools {
			r := sqlrecords.New(db, s.dialect, &sqlrecords.Config{Table: fmt.Sprint("together", round)})
			go func() { done <- r.Init(t.Context()) }() // ends when the table is there
		}
		for range clients {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

// prefixes: a prefix is bytes, of which the greatest are no exception.
func prefixes(t *testing.T, s *server) {
	r := s.records(t, s.table(t), nil)
	for _, key := range []string{"a", "a\ufffd", "a\ufffdb", "a\U0001f512", "b", "\U0010ffff"} {
		swap(t, r, key, "", "", 0)
	}
	for prefix, want := range map[string]int{"": 6, "a": 4, "a\ufffd": 2, "\U0010ffff": 1, "\xff": 0, "a\xff": 0, "\xf4": 1} {
		list, err := r.List(t.Context(), prefix)
		if err != nil || len(list) != want {
			t.Errorf("List(%q) shows %d records, %v, want %d", prefix, len(list), err, want)
		}
	}
}
