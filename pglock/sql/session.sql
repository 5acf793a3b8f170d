-- durable makes the transaction wait for the disk, and for synchronous standbys, when it commits.
-- Sessions commit asynchronously, so everything that must survive a crash calls it.
CREATE OR REPLACE FUNCTION fencelock.durable() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	IF set_config('synchronous_commit', 'on', true) <> 'on' THEN
		RAISE EXCEPTION 'synchronous_commit cannot be switched on';
	END IF;
END $$;

-- waited returns how many milliseconds have passed since the two clocks were stored: seen by the
-- server's and client by the client's, in microseconds since 1970. The smaller result counts, so
-- that a clock that was set forward opens nothing early. A negative result means that a clock was
-- set back. NULL if a time is missing.
CREATE OR REPLACE FUNCTION fencelock.waited(seen timestamptz, client bigint, now_client bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
	IF seen IS NULL OR client IS NULL THEN
		RETURN NULL; -- least would ignore a NULL
	END IF;
	RETURN floor(least(extract(epoch FROM clock_timestamp() - seen) * 1000, (now_client - client) / 1000.0));
END $$;

-- beat renews the leases of a session by storing the time. It returns the server process, or 0 if
-- it is not the session's. It runs with the permissions of the schema's owner, because no one else
-- may write or lock the row.
CREATE OR REPLACE FUNCTION fencelock.beat(s integer, now_client bigint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	UPDATE fencelock.beat SET at = clock_timestamp(), client = now_client WHERE session = s AND backend = pg_backend_pid();
	IF FOUND THEN
		RETURN pg_backend_pid();
	END IF;
	-- The schema was dropped and created again during the session.
	INSERT INTO fencelock.beat SELECT s, pg_backend_pid(), clock_timestamp(), now_client
	FROM pg_locks WHERE locktype = 'advisory' AND classid = {session} AND objid = s::oid AND objsubid = 2
		AND mode = 'ExclusiveLock' AND granted AND pid = pg_backend_pid()
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
	ON CONFLICT DO NOTHING;
	RETURN CASE WHEN FOUND THEN pg_backend_pid() ELSE 0 END;
END $$;

-- timeline returns the server's timeline, NULL if the server refuses to tell, as Amazon Aurora does.
-- pg_control_checkpoint() is no substitute: it shows the old one for a while after a promotion.
CREATE OR REPLACE FUNCTION fencelock.timeline() RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
	RETURN ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint;
EXCEPTION WHEN object_not_in_prerequisite_state OR feature_not_supported OR insufficient_privilege OR undefined_function THEN
	RETURN NULL;
END $$;

-- restart makes all later tokens greater than all earlier ones. It sets the sequence to the current
-- time, or, if the clock was set back, advances it by as many numbers as may have been lost.
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

-- register registers a session. It returns its id and for how many milliseconds nothing may be
-- granted yet. It runs with the permissions of the schema's owner, because no one else may write
-- the epoch. The search_path names pg_temp last; otherwise it would come first, and a caller's
-- temporary types could run the caller's code with those permissions.
CREATE OR REPLACE FUNCTION fencelock.register(most bigint, now_client bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	e fencelock.epoch;
	s fencelock.start;
	sys bigint := (SELECT system_identifier FROM pg_control_system()) # 'fencelock.epoch'::regclass::oid::bigint
		# (SELECT oid::bigint << 32 FROM pg_database WHERE datname = current_database());
	line bigint := fencelock.timeline();
	blind boolean := line IS NULL; -- then each start may be a promotion
	crashed boolean;
	anew boolean;  -- the server was started
	moved boolean; -- a promoted standby or a restored dump, which may lack tokens that others have issued since
	rest bigint := 0;
	id integer;
BEGIN
	most := greatest(0, least(most, {longest})); -- any role may call this function
	INSERT INTO fencelock.start AS x SELECT true, pg_postmaster_start_time(), clock_timestamp(), now_client
	WHERE NOT EXISTS (SELECT FROM fencelock.start) ON CONFLICT DO NOTHING;
	crashed := FOUND;
	anew := crashed OR EXISTS (SELECT FROM fencelock.start WHERE started <> pg_postmaster_start_time());
	SELECT * INTO e FROM fencelock.epoch;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'fencelock.epoch is empty, as after a restore of the schema without its data; drop the schema fencelock and create it anew'
			USING ERRCODE = 'object_not_in_prerequisite_state';
	END IF;
	line := coalesce(line, nullif(e.timeline, 0), 1);
	IF anew OR e.system <> sys OR e.timeline <> line OR least(e.max_ttl, e.sure_ttl) < most THEN
		SELECT * INTO e FROM fencelock.epoch FOR UPDATE;
		-- A standby that lacks the new tokens sets them forward itself when it is promoted. One that
		-- lacks the new max_ttl would grant too early, so only that waits for standbys. A wait that was
		-- cancelled leaves it committed here alone, so this waits until somebody's wait has ended well.
		IF least(e.max_ttl, e.sure_ttl) < most THEN
			PERFORM fencelock.durable();
		ELSE
			PERFORM set_config('synchronous_commit', 'local', true);
		END IF;
		moved := e.system <> sys OR e.timeline <> line;
		IF anew OR moved THEN -- also after an orderly stop, since a cold backup may have been restored
			PERFORM fencelock.restart(CASE WHEN moved OR blind THEN 68719476736 WHEN crashed THEN 8589934592 ELSE 0 END);
		END IF;
		IF moved AND (e.system, e.timeline) <> (0, 0) THEN -- a new schema has nothing to wait for
			UPDATE fencelock.start SET since = clock_timestamp(), client = now_client;
		END IF;
		UPDATE fencelock.epoch x SET system = sys, timeline = line, max_ttl = greatest(x.max_ttl, most), sure_ttl = least(x.sure_ttl, x.max_ttl)
		RETURNING * INTO e;
	END IF;
	UPDATE fencelock.start x SET started = pg_postmaster_start_time(), since = clock_timestamp(), client = now_client
	WHERE x.started <> pg_postmaster_start_time() OR x.since > clock_timestamp();
	SELECT * INTO s FROM fencelock.start;
	IF s.since > '-infinity' THEN
		-- A client whose clock is behind counts from now. Its clock is not stored: to the others, any
		-- time would seem to have passed since then, and a server's clock that was set forward would
		-- open early.
		rest := e.max_ttl - greatest(0, fencelock.waited(s.since, s.client, now_client));
		IF rest <= 0 THEN -- whatever a clock says later
			UPDATE fencelock.start SET since = '-infinity' WHERE since = s.since;
		END IF;
	END IF;
	LOOP -- a session from before the schema was dropped may still have the number
		id := nextval('fencelock.session_id');
		EXIT WHEN pg_try_advisory_lock({session}, id);
	END LOOP;
	INSERT INTO fencelock.beat VALUES (id, pg_backend_pid(), clock_timestamp(), now_client)
	ON CONFLICT (session) DO UPDATE SET backend = excluded.backend, at = excluded.at, client = excluded.client;
	RETURN concat_ws('|', id, greatest(0, rest));
END $$;

-- sure notes that register was answered, so its commit is on the standbys that it waited for. It
-- runs with the permissions of the schema's owner, like register.
CREATE OR REPLACE FUNCTION fencelock.sure(most bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	UPDATE fencelock.epoch SET sure_ttl = least(most, max_ttl) WHERE sure_ttl < least(most, max_ttl); -- any role may call this
END $$;

-- rested ends the restart wait for all clients. A session calls it when the time that register
-- returned is over by the clock of its process, which is not set. It runs with the permissions of
-- the schema's owner, like register.
CREATE OR REPLACE FUNCTION fencelock.rested() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	UPDATE fencelock.start SET since = '-infinity' WHERE since > '-infinity'
		AND clock_timestamp() - since >= (SELECT max_ttl FROM fencelock.epoch) * interval '1 ms'; -- any role may call this
END $$;

-- live returns whether a session is connected. mine is the caller's own session. It keeps no lock:
-- thousands of dead sessions would fill the server's lock table. No interrupt is processed between
-- the two calls of one expression, so a cancel cannot leave the lock behind.
CREATE OR REPLACE FUNCTION fencelock.live(id integer, mine integer) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
	RETURN id = mine OR NOT (pg_try_advisory_lock_shared({session}, id) AND pg_advisory_unlock_shared({session}, id));
END $$;

-- retire deletes the beat row of a session that is about to end and holds nothing. It runs with the
-- permissions of the schema's owner, like beat.
CREATE OR REPLACE FUNCTION fencelock.retire(s integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	DELETE FROM fencelock.beat WHERE session = s AND backend = pg_backend_pid();
END $$;

-- remains returns for how many milliseconds the lease of a vanished holder still runs (rest): its
-- TTL, t, from the last renewal of its session, s. The holder took the lock at since, by its own
-- clock at client. The time that it counts from is returned as seen and client, for the next
-- caller. If the last renewal is unknown or a clock was set back, that is now. The caller has the
-- key or knows that the session has ended, so it sees everything that the session committed.
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
