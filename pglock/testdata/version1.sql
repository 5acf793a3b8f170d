-- What pglock keeps in a database. Running it again changes nothing that matters,
-- so it is also how a schema is repaired. Locks themselves are PostgreSQL's own
-- advisory locks; these tables hold what those cannot say.

SET LOCAL synchronous_commit = on;
SELECT pg_advisory_xact_lock(1717923427, 0);

CREATE SCHEMA IF NOT EXISTS fencelock;

-- Fencing tokens are (epoch << 40) + token.
CREATE SEQUENCE IF NOT EXISTS fencelock.token AS bigint;
CREATE SEQUENCE IF NOT EXISTS fencelock.session_id AS integer CYCLE;

-- Counted up before a row is added to the holders, by somebody who has its key.
CREATE SEQUENCE IF NOT EXISTS fencelock.change AS bigint;

-- Where the sequence has been counting: system is of the cluster and of this very
-- table, which a restored dump creates anew. A promotion or a restore may set the
-- sequence back, and so does a crash, since nobody waits until a token is on disk; so
-- each begins a new epoch, which is on disk before the first token of it is given
-- out. A promoted standby or a backup may not have heard of the last epochs, which
-- crashes began, and leaves room for them.
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
	note    text NOT NULL,
	weight  integer NOT NULL DEFAULT 1 -- how many of the seats it takes
);
ALTER TABLE fencelock.holder ADD COLUMN IF NOT EXISTS weight integer NOT NULL DEFAULT 1; -- to an older schema
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
	note    text NOT NULL,
	seats   integer NOT NULL DEFAULT 0,
	weight  integer NOT NULL DEFAULT 0
);
ALTER TABLE fencelock.waiter
	ADD COLUMN IF NOT EXISTS seats integer NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS weight integer NOT NULL DEFAULT 0;
CREATE INDEX IF NOT EXISTS waiter_key ON fencelock.waiter (key);

-- Minimum holds, which survive everything. Each has a twin among the holders, of
-- session 0, so that an acquire needs to look at one table only.
CREATE TABLE IF NOT EXISTS fencelock.minimum (
	key        bigint PRIMARY KEY,
	name       text NOT NULL,
	not_before timestamptz NOT NULL
);

-- Limits that were set while names were in use: each takes the place of the limit
-- of every request that has one. Read and written under the gate of the key.
CREATE TABLE IF NOT EXISTS fencelock.resized (
	key   bigint PRIMARY KEY,
	name  text NOT NULL,
	seats integer NOT NULL
);

-- A first use has nothing to wait for; a repair has.
INSERT INTO fencelock.incarnation (started, since)
SELECT pg_postmaster_start_time(), '-infinity' WHERE NOT EXISTS (SELECT FROM fencelock.epoch)
ON CONFLICT DO NOTHING;

INSERT INTO fencelock.epoch (epoch, system, timeline) VALUES (0, 0, 0) ON CONFLICT DO NOTHING;

-- durable makes the transaction wait for the disk when it commits. Sessions commit
-- asynchronously otherwise, so whatever must outlast a crash calls it.
CREATE OR REPLACE FUNCTION fencelock.durable() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	IF set_config('synchronous_commit', 'on', true) <> 'on' THEN
		RAISE EXCEPTION 'synchronous_commit cannot be switched on';
	END IF;
END $$;

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
	sys bigint := (SELECT system_identifier FROM pg_control_system()) # 'fencelock.epoch'::regclass::oid::bigint;
	line bigint := ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint;
	crashed boolean;
BEGIN
	PERFORM fencelock.durable();
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
			epoch = greatest(x.epoch + CASE WHEN x.system <> sys OR x.timeline <> line THEN 256 ELSE 1 END,
				line, extract(epoch FROM clock_timestamp())::bigint / 3600),
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
-- lease was over. One that let go holds the advisory lock (1717923431, low bits of its
-- token) until it has deleted its row; a session could get that beside itself, but
-- holders of the caller's session, mine, did not vanish.
CREATE OR REPLACE FUNCTION fencelock.closed(k bigint, mine integer, alone boolean) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	gone bigint[] := (SELECT array_agg(token) FROM fencelock.holder
		WHERE key = k AND session NOT IN (0, mine) AND (alone OR NOT shared)
		AND (shared OR pg_try_advisory_xact_lock_shared(1717923431, (token & 2147483647)::integer)));
BEGIN
	-- Looked up once more: by now some may have been deleted by holders that let go.
	RETURN (SELECT greatest(0, ceil(extract(epoch FROM max(u) - clock_timestamp()) * 1000))::bigint FROM (
		SELECT not_before AS u FROM fencelock.minimum WHERE key = k
		UNION ALL
		SELECT greatest(h.until, s.until) FROM fencelock.holder h LEFT JOIN fencelock.session s ON s.id = h.session
		WHERE h.key = k AND h.token = ANY (gone)
	) c);
END $$;

-- late is the token of the caller, who has just got key k, below zero if it must ask
-- closed: there are rows of the key, and not only of exclusive holders that let go. It
-- sees what was committed until now, also to a statement that has waited.
CREATE OR REPLACE FUNCTION fencelock.late(k bigint, mine integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	t bigint := nextval('fencelock.token');
BEGIN
	RETURN CASE WHEN EXISTS (SELECT FROM fencelock.holder WHERE key = k AND session <> mine
		AND (shared OR session = 0 OR pg_try_advisory_xact_lock_shared(1717923431, (token & 2147483647)::integer))) THEN -t ELSE t END;
END $$;

-- ahead spares the request of server process waiter, which waits for key k, both parts
-- of late: it does them now, while there is time. It is the token of the request if that
-- comes right after an exclusive holder who has not marked the key (advisory lock
-- (1717923432, m), where m stands for it) as let go, and 0 otherwise.
--
-- Nobody else can mark the key before the request is granted: who holds it and has
-- nobody but the request behind, is followed by it. So when it is granted and the key is
-- marked, this holder let go. The token is greater than the holder's: the holder's
-- process, seen idle after it was seen to hold the key, is done with the statement that
-- took both. A break, which mints one in between, lets the holder go without a mark.
--
-- The caller holds (1717923433, n) then, for as long as the request waits.
CREATE OR REPLACE FUNCTION fencelock.ahead(k bigint, m integer, n integer, waiter integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	before integer[] := pg_blocking_pids(waiter);
	newest integer;
	t bigint;
BEGIN
	SELECT s.backend INTO newest FROM fencelock.holder h JOIN fencelock.session s ON s.id = h.session
	JOIN LATERAL pg_stat_get_activity(s.backend) a ON a.backend_start = s.began AND a.state = 'idle'
	WHERE h.key = k ORDER BY h.token DESC LIMIT 1;
	IF newest IS NULL OR before <> ARRAY[newest] OR EXISTS (SELECT FROM fencelock.holder WHERE key = k AND shared)
		OR NOT pg_try_advisory_xact_lock_shared(1717923432, m) THEN
		RETURN 0;
	END IF;
	t := nextval('fencelock.token');
	RETURN CASE WHEN pg_try_advisory_lock(1717923433, n) THEN t ELSE 0 END;
END $$;

-- share makes a shared holder of one who has the shared lock on key k already
-- (have) or tries to get it. verdict is "ok", or why not: "held", "queued",
-- "full", "limit" (another one is in force) or "closed" (for so many milliseconds).
CREATE OR REPLACE FUNCTION fencelock.share(k bigint, have boolean, mine integer, ep bigint, who jsonb,
	OUT verdict text, OUT tok bigint, OUT low bigint, OUT wait bigint, OUT lim integer)
LANGUAGE plpgsql AS $$
DECLARE
	want integer := (who->>'seats')::integer;
	units integer := coalesce((who->>'weight')::integer, 1);
	resized integer;
	taken bigint;
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
	IF want > 0 THEN
		resized := (SELECT r.seats FROM fencelock.resized r WHERE r.key = k);
	END IF;
	SELECT sum(h.weight), min(h.token), max(h.seats) FILTER (WHERE h.seats <> want AND (resized IS NULL OR h.seats = 0))
	INTO taken, lows, lim
	FROM fencelock.holder h LEFT JOIN fencelock.session s ON s.id = h.session
	WHERE h.key = k AND h.shared
		AND (greatest(h.until, s.until) > clock_timestamp() OR fencelock.alive(h.session, mine));
	wait := fencelock.closed(k, mine, false);
	IF lim IS NOT NULL THEN
		verdict := 'limit';
	ELSIF want > 0 AND taken + units > coalesce(resized, want) THEN -- taken is null if there is nobody
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
			(who->>'ttl')::bigint, mine, who->>'host', (who->>'pid')::integer, who->>'note', units;
		RETURN;
	END IF;
	IF NOT have THEN
		PERFORM pg_advisory_unlock_shared(k);
	END IF;
END $$;

-- together takes several keys, of which the session has none, or none of them: toks
-- are their tokens, or at is the place of one that is in the way. look says that
-- there are rows of the keys, none of which closes them.
CREATE OR REPLACE FUNCTION fencelock.together(keys bigint[], mine integer, OUT at integer, OUT toks bigint[], OUT look boolean)
LANGUAGE plpgsql AS $$
DECLARE
	n integer := cardinality(keys);
BEGIN
	FOR i IN 1 .. n LOOP
		IF NOT pg_try_advisory_lock(keys[i]) THEN
			at := i;
			n := i - 1;
			EXIT;
		END IF;
	END LOOP;
	look := at IS NULL AND EXISTS (SELECT FROM fencelock.holder WHERE key = ANY (keys) AND session <> mine);
	IF look THEN
		at := (SELECT min(i) FROM generate_series(1, n) i WHERE fencelock.closed(keys[i], mine, true) > 0);
	END IF;
	IF at IS NULL THEN
		toks := ARRAY(SELECT nextval('fencelock.token') FROM generate_series(1, n));
		RETURN;
	END IF;
	FOR i IN 1 .. n LOOP
		PERFORM pg_advisory_unlock(keys[i]);
	END LOOP;
END $$;

-- share_together is together for shared holders; who has one object for each key.
-- low is the smallest token among the holders of each. verdict and lim say why not,
-- as share does. Gates are taken in the order of the keys.
CREATE OR REPLACE FUNCTION fencelock.share_together(keys bigint[], mine integer, ep bigint, who jsonb,
	OUT at integer, OUT toks bigint[], OUT low bigint[], OUT verdict text, OUT lim integer)
LANGUAGE plpgsql AS $$
DECLARE
	s record;
BEGIN
	FOR i IN 1 .. cardinality(keys) LOOP
		s := fencelock.share(keys[i], false, mine, ep, who->(i - 1));
		verdict := s.verdict;
		IF verdict <> 'ok' THEN
			at := i;
			lim := s.lim;
			EXIT;
		END IF;
		toks := toks || s.tok;
		low := low || s.low;
	END LOOP;
	FOR i IN 1 .. coalesce(at, 1) - 1 LOOP
		DELETE FROM fencelock.holder WHERE owner = who->(i - 1)->>'owner' AND key = keys[i];
		PERFORM pg_advisory_unlock_shared(keys[i]);
	END LOOP;
END $$;

-- resize sets the limit of a key for everybody, and wakes who waits for seats. Both
-- happen when it is on disk.
CREATE OR REPLACE FUNCTION fencelock.resize(k bigint, n text, lim integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencelock.durable();
	PERFORM pg_advisory_xact_lock(1717923428, hashint8(k));
	INSERT INTO fencelock.resized VALUES (k, n, lim)
	ON CONFLICT (key) DO UPDATE SET name = excluded.name, seats = excluded.seats;
	PERFORM pg_notify('fencelock', 'free ' || k);
END $$;

GRANT USAGE ON SCHEMA fencelock TO PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA fencelock TO PUBLIC;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA fencelock TO PUBLIC;
