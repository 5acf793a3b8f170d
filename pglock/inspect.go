package pglock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/jackc/pgx/v5/pgconn"
)

// inspection is one Inspect and what it has learned.
type inspection struct {
	cfg     Config
	conn    *pgconn.PgConn
	ttl     time.Duration
	facts   pipe.Row
	backend uint32 // that was told at connect
	took    []time.Duration
	ahead   time.Duration // the server's clock, of ours
	doubt   time.Duration
}

// Inspect looks for what in the server, its settings, the role's rights and what
// lies in between weakens the promises of locks with the given TTL. It opens one
// connection and changes nothing. The error is for a server that cannot be asked.
func (e *Engine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	in := &inspection{cfg: e.dialer.cfg, ttl: ttl}
	defer in.closeConn(ctx)
	if err := e.dialer.eachHost(ctx, in.askPrimary); err != nil {
		if err := e.dialer.eachHost(ctx, in.ask); err != nil { // there is no primary, or it has no answers
			return nil, failure(err)
		}
	}
	return []driver.Finding{
		in.version(), in.role(), in.pooler(), in.names(), in.schema(),
		in.lease(ctx), in.commits(ctx), in.durability(),
		in.connections(), in.lockTable(), in.snapshot(ctx), in.clock(), in.latency(),
	}, nil
}

// The columns of inspectSQL.
const (
	colBackend = iota
	colVersionNum
	colVersion
	colStandby
	colHash
	colFsync
	colFullPages
	colSlots
	colSlotsUsed
	colConns
	colConnsFree
	colConnsWhose
	colSchema
	colMayCreate
	colUser
)

const inspectSQL = `SELECT pg_backend_pid(), current_setting('server_version_num'), current_setting('server_version'),
	pg_is_in_recovery(), pg_catalog.hashtextextended($1::text, 0::bigint), current_setting('fsync'), current_setting('full_page_writes'),
	current_setting('max_locks_per_transaction')::bigint *
		(current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint),
	(SELECT count(*) FROM pg_locks WHERE NOT fastpath),
	conns.most, conns.most - conns.used, conns.whose,
	to_regproc('fencelock.ready') IS NOT NULL, has_database_privilege(current_database(), 'CREATE'), current_user
FROM (SELECT * FROM (
	SELECT current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint, count(*), 'the server'
	FROM pg_stat_activity WHERE usesysid IS NOT NULL AND datid IS NOT NULL
	UNION ALL SELECT rolconnlimit, (SELECT count(*) FROM pg_stat_activity WHERE usesysid = r.oid), 'the role ' || rolname
	FROM pg_roles r WHERE rolname = current_user AND rolconnlimit >= 0 AND NOT rolsuper
	UNION ALL SELECT datconnlimit, (SELECT count(*) FROM pg_stat_activity WHERE datid = d.oid), 'the database ' || datname
	FROM pg_database d WHERE datname = current_database() AND datconnlimit >= 0
	) AS limits(most, used, whose) ORDER BY most - used LIMIT 1) AS conns`

// pings is how many round trips are measured.
const pings = 20

// closeConn ends the connection.
func (in *inspection) closeConn(ctx context.Context) {
	if in.conn != nil {
		_ = in.conn.Close(ctx) // it is not needed any more
	}
}

// askPrimary is ask for a server that is no standby.
func (in *inspection) askPrimary(ctx context.Context, c *pgconn.PgConn, _ string) error {
	err := in.ask(ctx, c, "")
	if err == nil && in.standby() {
		return refuse("the server is a hot standby")
	}
	return err
}

// ask puts the questions that need no right, and measures how long answers take.
func (in *inspection) ask(ctx context.Context, c *pgconn.PgConn, _ string) error {
	in.closeConn(ctx)
	in.conn, in.backend, in.took, in.doubt = c, c.PID(), nil, 0
	r, err := one(in.conn.ExecParams(ctx, inspectSQL, [][]byte{[]byte(probe)}, nil, nil, nil).Read())
	if err != nil {
		return err
	}
	in.facts = r
	for range pings {
		begun := time.Now()
		r, err := one(in.conn.ExecParams(ctx, timeSQL, nil, nil, nil, nil).Read())
		if err != nil {
			return err
		}
		took := time.Since(begun)
		in.took = append(in.took, took)
		// The answer was made somewhere between question and answer.
		if in.doubt == 0 || took/2 < in.doubt {
			in.doubt = took / 2
			in.ahead = r.Micros(0).Sub(begun.Add(in.doubt))
		}
	}
	return nil
}

// passed is a finding of nothing to worry about.
func passed(check, saw string) driver.Finding { return driver.Finding{Check: check, Observed: saw} }

// bad is a finding that says what it means and what to do.
func bad(check string, how driver.Severity, saw, means, do string) driver.Finding {
	return driver.Finding{Check: check, Severity: how, Observed: saw, Impact: means, Fix: do}
}

// version is about the server's: before 14 it ends no idle session.
func (in *inspection) version() driver.Finding {
	saw := "PostgreSQL " + in.facts.Text(colVersion)
	if in.facts.Int(colVersionNum) >= 140000 {
		return passed("version", saw)
	}
	return bad("version", driver.Broken, saw, "it cannot end the locks of a frozen client, so the engine refuses it",
		"use PostgreSQL 14 or later")
}

// standby reports whether the server is a hot standby.
func (in *inspection) standby() bool { return in.facts.Text(colStandby) == "t" }

// role is about primary and standby.
func (in *inspection) role() driver.Finding {
	if !in.standby() {
		return passed("role", "a primary")
	}
	return bad("role", driver.Broken, "a hot standby", "its locks exclude nobody on the primary, so the engine refuses it",
		"connect to the primary (target_session_attrs=read-write)")
}

// pooler compares the server process that answered with the one that the
// connection was promised.
func (in *inspection) pooler() driver.Finding {
	if uint32(in.facts.Int(colBackend)) == in.backend {
		return passed("pooler", "a direct connection")
	}
	if in.cfg.AllowPooler {
		return bad("pooler", driver.Warning, "a connection pooler, which is allowed",
			"in any but session mode it takes locks away, or gives them to others", "make sure of session mode, or connect to the server directly")
	}
	return bad("pooler", driver.Broken, "a connection pooler",
		"it may take locks away, or give them to others, so the engine refuses it",
		"connect to the server directly, or allow a pooler that is in session mode (AllowPooler, pooler=allow)")
}

// names is about the hash of a name, which this process computes as well.
func (in *inspection) names() driver.Finding {
	if in.facts.Int(colHash) == hashText(probe) {
		return passed("names", "hashed as expected")
	}
	return bad("names", driver.Broken, "hashed differently", "clients would not agree on the key of a name, so the engine refuses the database",
		"use a database in UTF8")
}

// schema is about the tables, and who may make them.
func (in *inspection) schema() driver.Finding {
	switch {
	case in.facts.Text(colSchema) == "t":
		return passed("schema", "there")
	case in.facts.Text(colMayCreate) == "t":
		return passed("schema", "not there yet; the first lock creates it")
	}
	return bad("schema", driver.Broken, "not there, and the role "+in.facts.Text(colUser)+" may not create it", "no lock can be had",
		"let an administrator run the SQL that fencelock init prints")
}

// lease finds out whether the server can be told to end a session that is silent.
func (in *inspection) lease(ctx context.Context) driver.Finding {
	want := strconv.FormatInt(in.ttl.Milliseconds(), 10)
	got, err := in.try(ctx, "idle_session_timeout", want)
	if err == nil && got == want {
		return passed("lease", fmt.Sprintf("idle_session_timeout can be set to %v", in.ttl))
	}
	saw := fmt.Sprintf("idle_session_timeout stays at %s ms", got)
	if err != nil {
		saw = "idle_session_timeout cannot be set: " + err.Error()
	}
	return bad("lease", driver.Broken, saw, "the server would keep the locks of a frozen or cut-off client, so the engine refuses it",
		"let the role set idle_session_timeout, and let nothing in between change it")
}

// commits finds out whether what must outlast a crash can be made to: the epoch of
// the tokens, minimum holds and limits.
func (in *inspection) commits(ctx context.Context) driver.Finding {
	const check = "synchronous_commit"
	got, err := in.try(ctx, check, "on")
	if err == nil && got == "on" {
		return passed(check, "on, where the engine needs it")
	}
	saw := "stays at " + got
	if err != nil {
		saw = err.Error()
	}
	return bad(check, driver.Broken, saw, "a crash may undo minimum holds, limits and the epoch of fencing tokens, so the engine refuses the server",
		"let the role set synchronous_commit, and let nothing in between change it")
}

// try gives a setting a value in a transaction that is rolled back, since behind a
// pooler the session may be somebody else's, and returns what it was then.
func (in *inspection) try(ctx context.Context, setting, value string) (got string, err error) {
	if err := in.conn.Exec(ctx, "BEGIN").Close(); err != nil {
		return "", err
	}
	defer func() {
		if end := in.conn.Exec(ctx, "ROLLBACK").Close(); err == nil {
			err = end
		}
	}()
	args := [][]byte{[]byte(setting), []byte(value)}
	if _, err := one(in.conn.ExecParams(ctx, "SELECT set_config($1::text, $2::text, true)", args, nil, nil, nil).Read()); err != nil {
		return "", err
	}
	r, err := one(in.conn.ExecParams(ctx, "SELECT setting FROM pg_settings WHERE name = $1::text", args[:1], nil, nil, nil).Read())
	if err != nil {
		return "", err
	}
	return r.Text(0), nil
}

// durability is about what a crash of the server's host may undo.
func (in *inspection) durability() driver.Finding {
	fsync, pages := in.facts.Text(colFsync), in.facts.Text(colFullPages)
	saw := fmt.Sprintf("fsync = %s, full_page_writes = %s", fsync, pages)
	if fsync == "on" && pages == "on" {
		return passed("durability", saw)
	}
	return bad("durability", driver.Warning, saw, "after a crash of the server's host fencing tokens may come again",
		"set both on")
}

// connections is about what is left for this engine: one connection for notes, one
// for locks, one for records and rates, and some for requests that wait. The server, the
// database and the role have a limit each, and the narrowest counts.
func (in *inspection) connections() driver.Finding {
	free, want := in.facts.Int(colConnsFree), int64(in.cfg.MaxWaiters)+3
	saw := fmt.Sprintf("%d of %d free for %s", free, in.facts.Int(colConns), in.facts.Text(colConnsWhose))
	if free >= want {
		return passed("connections", saw)
	}
	return bad("connections", driver.Warning, saw,
		fmt.Sprintf("one process may want %d, for locks, notes, records and waiters; without them locks cannot be had", want),
		"raise max_connections, or the CONNECTION LIMIT of the role or the database, or lower MaxWaiters (max-waiters)")
}

// oldSnapshot is how many transactions ago a snapshot may have been taken before people are told.
const oldSnapshot = 10000

// What the role may not see has no age. A snapshot of another database holds nothing up here.
const snapshotSQL = `SELECT what, age FROM (
	SELECT 'server process ' || pid || concat(' (' || nullif(application_name, '') || ')'), age(backend_xmin)
	FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND (datname = current_database() OR datname IS NULL)
	UNION ALL SELECT 'prepared transaction ' || gid, age(transaction) FROM pg_prepared_xacts WHERE database = current_database()
	UNION ALL SELECT 'replication slot ' || slot_name, age(xmin) FROM pg_replication_slots
) AS x(what, age) WHERE age IS NOT NULL ORDER BY age DESC LIMIT 1`

// snapshot is about the oldest snapshot of the database: VACUUM removes nothing that it may see,
// and each operation on a busy name reads over what is left.
func (in *inspection) snapshot(ctx context.Context) driver.Finding {
	const check = "snapshots"
	got := in.conn.ExecParams(ctx, snapshotSQL, nil, nil, nil, nil).Read()
	if got.Err != nil {
		return bad(check, driver.Warning, "unknown: "+got.Err.Error(), "an old one makes locks slower", "let the role read pg_stat_activity")
	}
	if len(got.Rows) == 0 {
		return passed(check, "none")
	}
	who, age := pipe.Row(got.Rows[0]).Text(0), pipe.Row(got.Rows[0]).Int(1)
	saw := fmt.Sprintf("the oldest is of %s, %d transactions ago", who, age)
	if age <= oldSnapshot {
		return passed(check, saw)
	}
	return bad(check, driver.Warning, saw, "VACUUM removes nothing that it may see, so operations on busy names become slower",
		"end that transaction, or drop the slot; set idle_in_transaction_session_timeout")
}

// fewLocks is how many locks a server should have room for.
const fewLocks = 1000

// lockTable is about the room for locks, which all kinds and all databases share.
func (in *inspection) lockTable() driver.Finding {
	all, used := in.facts.Int(colSlots), in.facts.Int(colSlotsUsed)
	saw := fmt.Sprintf("room for %d locks of all kinds, %d taken", all, used)
	switch {
	case used*10 > all*6:
		return bad("lock table", driver.Warning, saw, "a full table fails locks, and other statements and connections with them",
			"raise max_locks_per_transaction")
	case all < fewLocks:
		return bad("lock table", driver.Warning, saw, fmt.Sprintf("one process may hold %d at once; more are refused", all*6/10),
			"raise max_locks_per_transaction")
	}
	return passed("lock table", saw)
}

// clockBound is how far apart clocks may be before people are misled.
const clockBound = 500 * time.Millisecond

// clock is about how far the server's is from this host's.
func (in *inspection) clock() driver.Finding {
	direction := "ahead"
	if in.ahead < 0 {
		direction = "behind"
	}
	saw := fmt.Sprintf("the server is %s by %v, give or take %v", direction, short(in.ahead.Abs()), short(in.doubt))
	if in.ahead.Abs()-in.doubt <= clockBound {
		return passed("clock", saw)
	}
	return bad("clock", driver.Warning, saw, "times in lists are off here; no lock depends on both clocks",
		"keep both clocks with NTP, and let them be slewed rather than stepped")
}

// renewPart is the part of a TTL after which a lease is renewed.
const renewPart = 3

// latency compares the time of a statement with what a renewal may take.
func (in *inspection) latency() driver.Finding {
	took := slices.Sorted(slices.Values(in.took))
	middle, longest := took[len(took)/2], took[len(took)-1]
	limit := in.ttl / renewPart / 2
	saw := fmt.Sprintf("p50 %v, longest %v, of %d statements", short(middle), short(longest), len(took))
	switch {
	case middle > limit:
		return bad("latency", driver.Broken, saw, fmt.Sprintf("a statement to renew a TTL of %v should take %v at most, so locks are lost", in.ttl, limit),
			"a longer TTL, or a server that is nearer")
	case longest > limit/2:
		return bad("latency", driver.Warning, saw, fmt.Sprintf("a statement to renew a TTL of %v should take %v at most", in.ttl, limit),
			"a longer TTL")
	}
	return passed("latency", saw)
}

// short rounds a time for people.
func short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
