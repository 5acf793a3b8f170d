-- durable makes the transaction wait for the disk when it commits. Sessions commit
-- asynchronously otherwise, so whatever must outlast a crash calls it.
CREATE OR REPLACE FUNCTION fencelock.durable() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	IF set_config('synchronous_commit', 'on', true) <> 'on' THEN
		RAISE EXCEPTION 'synchronous_commit cannot be switched on';
	END IF;
END $$;

-- waited is how many milliseconds have passed since a client noted both clocks. The
-- one that says less is believed, so that neither of them, set forward, opens anything
-- early; below zero, one was set back.
CREATE OR REPLACE FUNCTION fencelock.waited(seen timestamptz, client bigint, now_client bigint) RETURNS bigint
LANGUAGE sql AS $$
	SELECT least((extract(epoch FROM clock_timestamp() - seen) * 1000)::bigint, now_client - client)
$$;

-- restart makes sure that all later tokens are greater than all earlier ones: it sets
-- the sequence to the time, or, where that was set back, so many numbers further as may have
-- been lost.
CREATE OR REPLACE FUNCTION fencelock.restart(lost bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	base numeric := (SELECT epoch::numeric * 1099511627776 FROM fencelock.epoch);
	next numeric;
BEGIN
	next := greatest((SELECT last_value FROM fencelock.token) + lost, floor(extract(epoch FROM clock_timestamp()) * 1073741824) - base);
	IF base + next > 9223372036854775807 - 1099511627776 THEN
		RAISE EXCEPTION 'the fencing tokens are used up: the server''s clock is too far in the future';
	END IF;
	PERFORM setval('fencelock.token', next::bigint);
END $$;

-- register registers a session. It returns its id, the epoch, and for how many milliseconds
-- nobody may be granted anything yet. It runs with the rights of the schema's owner, since
-- nobody else may write the epoch. A path that does not name pg_temp begins with it, and a
-- caller's types there would run the caller's code with those rights.
CREATE OR REPLACE FUNCTION fencelock.register(most bigint, now_client bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	e fencelock.epoch;
	s fencelock.start;
	bare bigint := (SELECT system_identifier FROM pg_control_system()) # 'fencelock.epoch'::regclass::oid::bigint; -- without the database
	sys bigint := bare # (SELECT oid::bigint << 32 FROM pg_database WHERE datname = current_database());
	line bigint := ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint;
	crashed boolean;
	anew boolean;  -- the server was started
	moved boolean; -- a promoted standby or a restored dump, which may lack what others have issued since
	id integer;
BEGIN
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
		moved := e.system NOT IN (sys, bare) OR e.timeline <> line;
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
	RETURN concat_ws('|', id, e.epoch, CASE WHEN s.since = '-infinity' THEN 0
		ELSE greatest(0, e.max_ttl - fencelock.waited(s.since, s.client, now_client)) END);
END $$;

-- enter is how version 1 registers a session: its tokens come from the same sequence.
DO $do$
BEGIN
	IF to_regclass('fencelock.session') IS NULL THEN
		RETURN;
	END IF;
	CREATE OR REPLACE FUNCTION fencelock.enter(ttl bigint, most bigint, OUT id integer, OUT epoch bigint, OUT closed bigint)
	LANGUAGE plpgsql AS $$
	DECLARE
		r text[] := string_to_array(fencelock.register(most, (extract(epoch FROM clock_timestamp()) * 1000)::bigint), '|');
	BEGIN
		id := r[1];
		epoch := r[2];
		closed := r[3];
		INSERT INTO fencelock.session AS x
		SELECT enter.id, pg_backend_pid(), a.backend_start, clock_timestamp() + ttl * interval '1 ms', clock_timestamp()
		FROM pg_stat_get_activity(pg_backend_pid()) a
		ON CONFLICT ON CONSTRAINT session_pkey DO UPDATE SET
			backend = excluded.backend, began = excluded.began, until = excluded.until, heard = excluded.heard;
	END $$;
END $do$;

-- alive says whether a session is still connected; mine is the caller's own.
CREATE OR REPLACE FUNCTION fencelock.live(id integer, mine integer) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
	RETURN id = mine OR NOT pg_try_advisory_xact_lock_shared({session}, id);
END $$;

-- sweep removes what vanished requests left behind, and the rows of free names. The
-- row of a vanished holder goes when its TTL has passed since somebody saw that.
CREATE OR REPLACE FUNCTION fencelock.sweep(mine integer, now_client bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	alive integer[] := (SELECT coalesce(array_agg(objid::bigint::integer), '{}') FROM pg_locks
		WHERE locktype = 'advisory' AND objsubid = 2 AND classid = {session} AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()));
BEGIN
	DELETE FROM fencelock.queued WHERE session <> ALL (alive) AND NOT fencelock.live(session, mine);
	UPDATE fencelock.held SET seen = clock_timestamp(), client = now_client
	WHERE owner IS NOT NULL AND (seen IS NULL OR fencelock.waited(seen, client, now_client) < 0)
		AND session <> ALL (alive) AND NOT fencelock.live(session, mine);
	UPDATE fencelock.sharer SET seen = clock_timestamp(), client = now_client
	WHERE (seen IS NULL OR fencelock.waited(seen, client, now_client) < 0)
		AND session <> ALL (alive) AND NOT fencelock.live(session, mine);
	DELETE FROM fencelock.sharer WHERE seen IS NOT NULL AND fencelock.waited(seen, client, now_client) >= ttl;
	DELETE FROM fencelock.held WHERE key IN (SELECT key FROM fencelock.held
		WHERE owner IS NULL AND since < clock_timestamp() - interval '1 minute'
			OR owner IS NOT NULL AND seen IS NOT NULL AND fencelock.waited(seen, client, now_client) >= ttl
		LIMIT 10000 FOR UPDATE SKIP LOCKED);
	DELETE FROM fencelock.minimum WHERE not_before < clock_timestamp();
END $$;
