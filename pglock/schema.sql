-- What pglock keeps in a database. Running it again changes nothing that matters,
-- so it is also how a schema is repaired. Locks themselves are PostgreSQL's own
-- advisory locks; these tables hold what those cannot say.

SELECT pg_advisory_xact_lock(1717923427, 0);

CREATE SCHEMA IF NOT EXISTS fencelock;

-- Fencing tokens are (epoch << 40) + token.
CREATE SEQUENCE IF NOT EXISTS fencelock.token AS bigint;
CREATE SEQUENCE IF NOT EXISTS fencelock.session_id AS integer CYCLE;

-- Counted up before a row is added to the holders, by somebody who has its key.
CREATE SEQUENCE IF NOT EXISTS fencelock.change AS bigint;

-- Which cluster and timeline the sequence has been counting in. A promotion or a
-- restore may set the sequence back, and so may a crash, since a token is given out
-- while the one before it is being written; so each begins a new epoch.
CREATE TABLE IF NOT EXISTS fencelock.epoch (
	one      boolean PRIMARY KEY DEFAULT true CHECK (one),
	epoch    bigint NOT NULL,
	system   bigint NOT NULL,
	timeline bigint NOT NULL,
	max_ttl  bigint NOT NULL DEFAULT 0, -- milliseconds
	version  integer NOT NULL DEFAULT 1
);

-- Since when nobody can hold what an earlier life of the server granted. Empty
-- after a crash or a promotion, as all unlogged tables are.
CREATE UNLOGGED TABLE IF NOT EXISTS fencelock.incarnation (
	one     boolean PRIMARY KEY DEFAULT true CHECK (one),
	started timestamptz NOT NULL,
	since   timestamptz NOT NULL
);

-- One row per connection of an engine. While it lives it also holds the advisory
-- lock (1717923430, id).
CREATE UNLOGGED TABLE IF NOT EXISTS fencelock.session (
	id      integer PRIMARY KEY,
	backend integer NOT NULL,
	began   timestamptz NOT NULL, -- backend_start
	until   timestamptz NOT NULL, -- when its leases end unless it is heard again
	heard   timestamptz NOT NULL
);

-- Who holds, written up to a second late except by shared holders.
CREATE UNLOGGED TABLE IF NOT EXISTS fencelock.holder (
	owner   text PRIMARY KEY,
	key     bigint NOT NULL,
	name    text NOT NULL,
	token   bigint NOT NULL,
	shared  boolean NOT NULL,
	seats   integer NOT NULL,
	since   timestamptz NOT NULL,
	until   timestamptz NOT NULL,
	ttl     bigint NOT NULL, -- milliseconds
	session integer NOT NULL,
	host    text NOT NULL,
	pid     integer NOT NULL,
	note    text NOT NULL
);
CREATE INDEX IF NOT EXISTS holder_key ON fencelock.holder (key);
CREATE INDEX IF NOT EXISTS holder_session ON fencelock.holder (session);

-- Who waits. session is the engine's own, backend the one that waits in the server.
CREATE UNLOGGED TABLE IF NOT EXISTS fencelock.waiter (
	owner   text PRIMARY KEY,
	key     bigint NOT NULL,
	name    text NOT NULL,
	shared  boolean NOT NULL,
	since   timestamptz NOT NULL,
	session integer NOT NULL,
	backend integer NOT NULL, -- 0 while it waits in its process only
	host    text NOT NULL,
	pid     integer NOT NULL,
	note    text NOT NULL
);
CREATE INDEX IF NOT EXISTS waiter_key ON fencelock.waiter (key);

-- Minimum holds, which survive everything. Each has a twin among the holders, of
-- session 0, so that an acquire needs to look at one table only.
CREATE TABLE IF NOT EXISTS fencelock.minimum (
	key        bigint PRIMARY KEY,
	name       text NOT NULL,
	not_before timestamptz NOT NULL
);

-- A first use has nothing to wait for; a repair has.
INSERT INTO fencelock.incarnation (started, since)
SELECT pg_postmaster_start_time(), '-infinity' WHERE NOT EXISTS (SELECT FROM fencelock.epoch)
ON CONFLICT DO NOTHING;

INSERT INTO fencelock.epoch (epoch, system, timeline) VALUES (0, 0, 0) ON CONFLICT DO NOTHING;

-- twin notes a minimum hold among the holders.
CREATE OR REPLACE FUNCTION fencelock.twin(m fencelock.minimum) RETURNS void
LANGUAGE sql AS $$
	SELECT nextval('fencelock.change');
	INSERT INTO fencelock.holder AS h
	VALUES ('minimum ' || m.key, m.key, m.name, 0, false, 0, clock_timestamp(), m.not_before, 0, 0, '', 0, '')
	ON CONFLICT (owner) DO UPDATE SET until = greatest(h.until, excluded.until)
$$;

-- enter registers a session. closed is how many milliseconds nobody may be granted
-- anything yet.
CREATE OR REPLACE FUNCTION fencelock.enter(ttl bigint, most bigint, OUT id integer, OUT epoch bigint, OUT closed bigint)
LANGUAGE plpgsql AS $$
DECLARE
	e fencelock.epoch;
	i fencelock.incarnation;
	sys bigint := (SELECT system_identifier FROM pg_control_system());
	line bigint := ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint;
	crashed boolean;
BEGIN
	INSERT INTO fencelock.incarnation AS x (started, since)
	SELECT pg_postmaster_start_time(), clock_timestamp() WHERE NOT EXISTS (SELECT FROM fencelock.incarnation)
	ON CONFLICT DO NOTHING;
	crashed := FOUND;
	UPDATE fencelock.incarnation x SET started = pg_postmaster_start_time(), since = pg_postmaster_start_time()
	WHERE x.started <> pg_postmaster_start_time();
	SELECT * INTO i FROM fencelock.incarnation;
	SELECT * INTO e FROM fencelock.epoch;
	IF crashed OR e.system <> sys OR e.timeline <> line OR e.max_ttl < most THEN
		PERFORM FROM fencelock.epoch FOR UPDATE;
		UPDATE fencelock.epoch x SET
			epoch = greatest(x.epoch + 1, line, extract(epoch FROM clock_timestamp())::bigint / 3600),
			system = sys, timeline = line
		WHERE crashed OR x.system <> sys OR x.timeline <> line;
		UPDATE fencelock.epoch x SET max_ttl = most WHERE x.max_ttl < most;
		SELECT * INTO e FROM fencelock.epoch;
	END IF;
	epoch := e.epoch;
	closed := CASE WHEN i.since = '-infinity' THEN 0
		ELSE greatest(0, ceil(e.max_ttl - extract(epoch FROM clock_timestamp() - i.since)::numeric * 1000)) END;
	id := nextval('fencelock.session_id');
	PERFORM pg_advisory_lock(1717923430, id);
	INSERT INTO fencelock.session AS x
	SELECT enter.id, pg_backend_pid(), a.backend_start, clock_timestamp() + ttl * interval '1 ms', clock_timestamp()
	FROM pg_stat_get_activity(pg_backend_pid()) a
	ON CONFLICT ON CONSTRAINT session_pkey DO UPDATE SET
		backend = excluded.backend, began = excluded.began, until = excluded.until, heard = excluded.heard;
	DELETE FROM fencelock.holder h WHERE h.session = enter.id;
	PERFORM fencelock.twin(m) FROM fencelock.minimum m WHERE m.not_before > clock_timestamp();
END $$;

-- alive says whether a session is still connected.
CREATE OR REPLACE FUNCTION fencelock.alive(id integer, mine integer) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
	RETURN id = mine OR NOT pg_try_advisory_xact_lock_shared(1717923430, id);
END $$;

-- closed is for how many milliseconds a key is closed to the caller, whose lock
-- nobody else can have: by a minimum hold, or by a holder that vanished before its
-- lease was over. One that let go holds the advisory lock (1717923431, hash of its
-- token) until it has deleted its row; a session could get that beside itself, but
-- holders of the caller's session, mine, did not vanish.
CREATE OR REPLACE FUNCTION fencelock.closed(k bigint, mine integer, alone boolean) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	gone bigint[] := (SELECT array_agg(token) FROM fencelock.holder
		WHERE key = k AND session NOT IN (0, mine) AND (alone OR NOT shared)
		AND (shared OR pg_try_advisory_xact_lock_shared(1717923431, hashint8(token))));
BEGIN
	-- Looked up once more: by now some may have been deleted by holders that let go.
	RETURN (SELECT greatest(0, ceil(extract(epoch FROM max(u) - clock_timestamp()) * 1000))::bigint FROM (
		SELECT not_before AS u FROM fencelock.minimum WHERE key = k
		UNION ALL
		SELECT greatest(h.until, s.until) FROM fencelock.holder h LEFT JOIN fencelock.session s ON s.id = h.session
		WHERE h.key = k AND h.token = ANY (gone)
	) c);
END $$;

-- suspect says whether the caller, who has just got key k, must ask closed: there
-- are rows of it, and not only of exclusive holders that let go. It sees what was
-- committed until now, also to a statement that has waited.
CREATE OR REPLACE FUNCTION fencelock.suspect(k bigint, mine integer) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
	RETURN EXISTS (SELECT FROM fencelock.holder WHERE key = k AND session <> mine
		AND (shared OR session = 0 OR pg_try_advisory_xact_lock_shared(1717923431, hashint8(token))));
END $$;

-- share makes a shared holder of one who has the shared lock on key k already
-- (have) or tries to get it. verdict is "ok", or why not: "held", "queued",
-- "full", "limit" (another one is in force) or "closed" (for so many milliseconds).
CREATE OR REPLACE FUNCTION fencelock.share(k bigint, have boolean, mine integer, ep bigint, who jsonb,
	OUT verdict text, OUT tok bigint, OUT low bigint, OUT wait bigint, OUT lim integer)
LANGUAGE plpgsql AS $$
DECLARE
	want integer := (who->>'seats')::integer;
	n integer;
	lows bigint;
BEGIN
	IF NOT have THEN
		IF want > 0 AND NOT pg_try_advisory_xact_lock_shared(1717923429, hashint8(k)) THEN
			verdict := 'queued';
			RETURN;
		END IF;
		IF NOT pg_try_advisory_lock_shared(k) THEN
			verdict := 'held';
			RETURN;
		END IF;
	END IF;
	PERFORM pg_advisory_xact_lock(1717923428, hashint8(k));
	SELECT count(*), min(h.token), max(h.seats) FILTER (WHERE h.seats <> want) INTO n, lows, lim
	FROM fencelock.holder h LEFT JOIN fencelock.session s ON s.id = h.session
	WHERE h.key = k AND h.shared
		AND (greatest(h.until, s.until) > clock_timestamp() OR fencelock.alive(h.session, mine));
	wait := fencelock.closed(k, mine, false);
	IF lim IS NOT NULL THEN
		verdict := 'limit';
	ELSIF want > 0 AND n >= want THEN
		verdict := 'full';
	ELSIF wait > 0 THEN
		verdict := 'closed';
	ELSE
		verdict := 'ok';
		tok := (ep << 40) + nextval('fencelock.token');
		low := least(tok, lows);
		PERFORM nextval('fencelock.change');
		INSERT INTO fencelock.holder
		SELECT who->>'owner', k, who->>'name', tok, true, want, clock_timestamp(),
			clock_timestamp() + (who->>'ttl')::bigint * interval '1 ms',
			(who->>'ttl')::bigint, mine, who->>'host', (who->>'pid')::integer, who->>'note';
		RETURN;
	END IF;
	IF NOT have THEN
		PERFORM pg_advisory_unlock_shared(k);
	END IF;
END $$;

GRANT USAGE ON SCHEMA fencelock TO PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA fencelock TO PUBLIC;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA fencelock TO PUBLIC;
