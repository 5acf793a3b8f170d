-- durable makes the transaction wait for the disk when it commits. Sessions commit
-- asynchronously otherwise, so whatever must outlast a crash calls it.
CREATE OR REPLACE FUNCTION fencelock.durable() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	IF set_config('synchronous_commit', 'on', true) <> 'on' THEN
		RAISE EXCEPTION 'synchronous_commit cannot be switched on';
	END IF;
END $$;

-- waited is how many milliseconds have passed since somebody noted the server's clock and its own,
-- in microseconds since 1970. The one that says less is believed, so that neither of them, set
-- forward, opens anything early; below zero, one was set back. It is NULL if one was not noted.
CREATE OR REPLACE FUNCTION fencelock.waited(seen timestamptz, client bigint, now_client bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
	IF seen IS NULL OR client IS NULL THEN
		RETURN NULL; -- least passes over it
	END IF;
	RETURN floor(least(extract(epoch FROM clock_timestamp() - seen) * 1000, (now_client - client) / 1000.0));
END $$;

-- beat renews the leases of a session: it notes when, and returns the server's process, or 0 if
-- that is not the session's. It runs with the rights of the schema's owner, since nobody else may
-- write, or lock, the row.
CREATE OR REPLACE FUNCTION fencelock.beat(s integer, now_client bigint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	UPDATE fencelock.beat SET at = clock_timestamp(), client = now_client WHERE session = s AND backend = pg_backend_pid();
	IF FOUND THEN
		RETURN pg_backend_pid();
	END IF;
	-- The schema was dropped and made anew while the session lives.
	INSERT INTO fencelock.beat SELECT s, pg_backend_pid(), clock_timestamp(), now_client
	FROM pg_locks WHERE locktype = 'advisory' AND classid = {session} AND objid = s::oid AND objsubid = 2
		AND mode = 'ExclusiveLock' AND granted AND pid = pg_backend_pid()
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
	ON CONFLICT DO NOTHING;
	RETURN CASE WHEN FOUND THEN pg_backend_pid() ELSE 0 END;
END $$;

-- restart makes sure that all later tokens are greater than all earlier ones: it sets
-- the sequence to the time, or, where that was set back, so many numbers further as may have
-- been lost.
CREATE OR REPLACE FUNCTION fencelock.restart(lost bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	next numeric := greatest((SELECT last_value FROM fencelock.token) + lost, floor(extract(epoch FROM clock_timestamp()) * 1073741824));
BEGIN
	IF next > 9223372036854775807 - 1099511627776 THEN
		RAISE EXCEPTION 'the fencing tokens are used up: the server''s clock is too far in the future';
	END IF;
	PERFORM setval('fencelock.token', next::bigint);
END $$;

-- register registers a session. It returns its id, and for how many milliseconds nobody may be
-- granted anything yet. It runs with the rights of the schema's owner, since
-- nobody else may write the epoch. A path that does not name pg_temp begins with it, and a
-- caller's types there would run the caller's code with those rights.
CREATE OR REPLACE FUNCTION fencelock.register(most bigint, now_client bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	e fencelock.epoch;
	s fencelock.start;
	sys bigint := (SELECT system_identifier FROM pg_control_system()) # 'fencelock.epoch'::regclass::oid::bigint
		# (SELECT oid::bigint << 32 FROM pg_database WHERE datname = current_database());
	line bigint := ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint;
	crashed boolean;
	anew boolean;  -- the server was started
	moved boolean; -- a promoted standby or a restored dump, which may lack what others have issued since
	id integer;
BEGIN
	most := greatest(0, least(most, {longest})); -- any role may call this
	INSERT INTO fencelock.start AS x SELECT true, pg_postmaster_start_time(), clock_timestamp(), now_client
	WHERE NOT EXISTS (SELECT FROM fencelock.start) ON CONFLICT DO NOTHING;
	crashed := FOUND;
	anew := crashed OR EXISTS (SELECT FROM fencelock.start WHERE started <> pg_postmaster_start_time());
	SELECT * INTO e FROM fencelock.epoch;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'fencelock.epoch is empty, as after a restore of the schema without its data; drop the schema fencelock and create it anew'
			USING ERRCODE = 'object_not_in_prerequisite_state';
	END IF;
	IF anew OR e.system <> sys OR e.timeline <> line OR e.max_ttl < most THEN
		PERFORM fencelock.durable();
		SELECT * INTO e FROM fencelock.epoch FOR UPDATE;
		moved := e.system <> sys OR e.timeline <> line;
		IF anew OR moved THEN -- after an orderly stop too, since a cold backup may have been put back
			PERFORM fencelock.restart(CASE WHEN moved THEN 68719476736 WHEN crashed THEN 8589934592 ELSE 0 END);
		END IF;
		IF moved AND (e.system, e.timeline) <> (0, 0) THEN -- a new schema has nothing to wait for
			UPDATE fencelock.start SET since = clock_timestamp(), client = now_client;
		END IF;
		UPDATE fencelock.epoch x SET system = sys, timeline = line, max_ttl = greatest(x.max_ttl, most)
		RETURNING * INTO e;
	END IF;
	UPDATE fencelock.start x SET started = pg_postmaster_start_time(), since = clock_timestamp(), client = now_client
	WHERE x.started <> pg_postmaster_start_time()
		OR x.since > '-infinity' AND fencelock.waited(x.since, x.client, now_client) < 0;
	SELECT * INTO s FROM fencelock.start;
	LOOP -- a session of before the schema was dropped may live still, and have the number
		id := nextval('fencelock.session_id');
		EXIT WHEN pg_try_advisory_lock({session}, id);
	END LOOP;
	INSERT INTO fencelock.beat VALUES (id, pg_backend_pid(), clock_timestamp(), now_client)
	ON CONFLICT (session) DO UPDATE SET backend = excluded.backend, at = excluded.at, client = excluded.client;
	RETURN concat_ws('|', id, CASE WHEN s.since = '-infinity' THEN 0
		ELSE greatest(0, e.max_ttl - fencelock.waited(s.since, s.client, now_client)) END);
END $$;

-- live says whether a session is still connected; mine is the caller's own.
CREATE OR REPLACE FUNCTION fencelock.live(id integer, mine integer) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
	RETURN id = mine OR NOT pg_try_advisory_xact_lock_shared({session}, id);
END $$;

-- remains says for how many milliseconds the lease of a holder that vanished still runs (rest),
-- which took the lock at since, by its own clock at client: a TTL, t, from the last renewal of its
-- session, s. What it counts from becomes seen and client, for the next one who asks: if nobody
-- knows the last renewal, or a clock was set back, it is now. The caller has the key, or has seen that
-- the session ended, so it sees all that this committed.
CREATE OR REPLACE FUNCTION fencelock.remains(s integer, since timestamptz, t bigint, cl bigint,
	INOUT seen timestamptz, INOUT client bigint, OUT rest bigint)
LANGUAGE plpgsql AS $$
DECLARE
	past bigint;
BEGIN
	IF seen IS NULL THEN -- no row leaves both NULL
		SELECT greatest(remains.since, b.at), greatest(remains.client, b.client) INTO seen, client
		FROM fencelock.beat b WHERE b.session = s;
	END IF;
	past := fencelock.waited(seen, client, cl);
	IF past >= 0 THEN
		rest := t - past;
	ELSE
		rest := t;
		seen := clock_timestamp();
		client := cl;
	END IF;
END $$;

-- sweep removes what vanished requests and holders left behind, and the rows of free names.
-- Nobody depends on it.
CREATE OR REPLACE FUNCTION fencelock.sweep(mine integer, now_client bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	dead integer[] := (SELECT array_agg(session) FROM (
			SELECT session FROM fencelock.held WHERE owner IS NOT NULL UNION SELECT session FROM fencelock.sharer
			UNION SELECT session FROM fencelock.queued UNION SELECT session FROM fencelock.beat) x
		WHERE NOT fencelock.live(session, mine));
BEGIN
	DELETE FROM fencelock.minimum WHERE not_before < clock_timestamp();
	DELETE FROM fencelock.queued WHERE session = ANY (dead);
	UPDATE fencelock.held SET (seen, client) = (SELECT r.seen, r.client FROM fencelock.remains(session, since, ttl, now_client, seen, client) r)
	WHERE owner IS NOT NULL AND session = ANY (dead);
	UPDATE fencelock.sharer SET (seen, client) = (SELECT r.seen, r.client FROM fencelock.remains(session, since, ttl, now_client, seen, client) r)
	WHERE session = ANY (dead);
	DELETE FROM fencelock.sharer WHERE session = ANY (dead) AND fencelock.waited(seen, client, now_client) >= ttl;
	DELETE FROM fencelock.held WHERE key IN (SELECT key FROM fencelock.held
		WHERE owner IS NULL AND since < clock_timestamp() - interval '1 minute'
			OR owner IS NOT NULL AND session = ANY (dead) AND fencelock.waited(seen, client, now_client) >= ttl
		LIMIT 10000 FOR UPDATE SKIP LOCKED);
	PERFORM fencelock.bury(dead);
END $$;

-- bury removes the beats of sessions that have ended and left nothing else behind. It runs with
-- the rights of the schema's owner, like beat.
CREATE OR REPLACE FUNCTION fencelock.bury(dead integer[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	DELETE FROM fencelock.beat b WHERE session = ANY (dead) AND NOT fencelock.live(session, 0)
		AND NOT EXISTS (SELECT FROM fencelock.held h WHERE h.session = b.session AND owner IS NOT NULL)
		AND NOT EXISTS (SELECT FROM fencelock.sharer h WHERE h.session = b.session);
END $$;
