-- The functions that delete the rows which vanished requests and holders left behind, and the rows
-- of free names. Nothing depends on them. A call examines one page of one table, so that its work,
-- its locks and the time for which it keeps rows locked are bounded.

-- sweep_page examines the page behind place and returns the number of deleted rows, "|", and the
-- next place. A place is the name of a table and the key of the last row that was examined there; ''
-- is the start and the end. While another client sweeps, sweep_page returns NULL.
CREATE OR REPLACE FUNCTION fencelock.sweep_page(mine integer, now_client bigint, place text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	what text := split_part(place, ' ', 1);
	after text := substr(place, length(what) + 2);
	n bigint;
BEGIN
	IF NOT pg_try_advisory_xact_lock({schema}, 1) THEN
		RETURN NULL;
	END IF;
	CASE what
	WHEN '', 'minimum' THEN
		what := 'minimum';
		SELECT * INTO after, n FROM fencelock.sweep_minimum(nullif(after, '')::bigint);
	WHEN 'queued' THEN
		SELECT * INTO after, n FROM fencelock.sweep_queued(mine, after);
	WHEN 'held' THEN
		SELECT * INTO after, n FROM fencelock.sweep_held(mine, now_client, nullif(after, '')::bigint);
	WHEN 'sharer' THEN
		SELECT * INTO after, n FROM fencelock.sweep_sharer(mine, now_client, after);
	ELSE
		SELECT * INTO after, n FROM fencelock.sweep_beat(mine, nullif(after, '')::integer);
	END CASE;
	RETURN n || '|' || coalesce(what || ' ' || after,
		CASE what WHEN 'minimum' THEN 'queued' WHEN 'queued' THEN 'held' WHEN 'held' THEN 'sharer' WHEN 'sharer' THEN 'beat' ELSE '' END);
END $$;

-- sweep is sweep_page for programs that do not know it.
CREATE OR REPLACE FUNCTION fencelock.sweep(mine integer, now_client bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	place text;
BEGIN
	FOREACH place IN ARRAY ARRAY['', 'queued', 'held', 'sharer', 'beat'] LOOP
		PERFORM fencelock.sweep_page(mine, now_client, place);
	END LOOP;
END $$;

-- sweep_minimum deletes minimum holds that are over.
CREATE OR REPLACE FUNCTION fencelock.sweep_minimum(INOUT after bigint, OUT n bigint)
LANGUAGE plpgsql AS $$
DECLARE
	page bigint[] := ARRAY(SELECT key FROM fencelock.minimum WHERE key > coalesce(after, -9223372036854775808) ORDER BY key LIMIT {page});
BEGIN
	DELETE FROM fencelock.minimum WHERE key IN (SELECT key FROM fencelock.minimum
		WHERE key = ANY (page) AND not_before < clock_timestamp() FOR UPDATE SKIP LOCKED);
	GET DIAGNOSTICS n = ROW_COUNT;
	after := page[{page}];
END $$;

-- sweep_queued deletes the rows of waiting requests whose session has ended.
CREATE OR REPLACE FUNCTION fencelock.sweep_queued(mine integer, INOUT after text, OUT n bigint)
LANGUAGE plpgsql AS $$
DECLARE
	page text[] := ARRAY(SELECT owner FROM fencelock.queued WHERE owner > after ORDER BY owner LIMIT {page});
BEGIN
	DELETE FROM fencelock.queued WHERE owner IN (SELECT owner FROM fencelock.queued
		WHERE owner = ANY (page) AND NOT fencelock.live(session, mine) FOR UPDATE SKIP LOCKED);
	GET DIAGNOSTICS n = ROW_COUNT;
	after := page[{page}];
END $$;

-- sweep_held deletes the rows of names that have been free for a minute, and of exclusive holders
-- whose session has ended and whose lease has expired. For the others whose session has ended it
-- stores the last renewal.
CREATE OR REPLACE FUNCTION fencelock.sweep_held(mine integer, now_client bigint, INOUT after bigint, OUT n bigint)
LANGUAGE plpgsql AS $$
DECLARE
	page bigint[] := ARRAY(SELECT key FROM fencelock.held WHERE key > coalesce(after, -9223372036854775808) ORDER BY key LIMIT {page});
	x fencelock.held;
	rest bigint;
BEGIN
	n := 0;
	FOR x IN SELECT * FROM fencelock.held WHERE key = ANY (page)
			AND CASE WHEN owner IS NULL THEN since < clock_timestamp() - interval '1 minute' ELSE NOT fencelock.live(session, mine) END
			FOR UPDATE SKIP LOCKED LOOP
		IF x.owner IS NOT NULL THEN
			SELECT r.* INTO x.seen, x.client, rest FROM fencelock.remains(x.session, x.since, x.ttl, now_client, x.seen, x.client) r;
		END IF;
		IF x.owner IS NULL OR rest <= 0 THEN
			DELETE FROM fencelock.held WHERE key = x.key;
			n := n + 1;
		ELSE
			UPDATE fencelock.held SET seen = x.seen, client = x.client WHERE key = x.key AND seen IS DISTINCT FROM x.seen;
		END IF;
	END LOOP;
	after := page[{page}];
END $$;

-- sweep_sharer is sweep_held for shared holders. Its cursor is a key, a space and an owner.
CREATE OR REPLACE FUNCTION fencelock.sweep_sharer(mine integer, now_client bigint, INOUT after text, OUT n bigint)
LANGUAGE plpgsql AS $$
DECLARE
	k bigint := coalesce(nullif(split_part(after, ' ', 1), '')::bigint, -9223372036854775808);
	o text := substr(after, strpos(after, ' ') + 1);
	y fencelock.sharer;
	rest bigint;
	i integer := 0;
BEGIN
	n := 0;
	after := NULL;
	FOR y IN SELECT * FROM fencelock.sharer WHERE (key, owner) > (k, o) ORDER BY key, owner LIMIT {page} LOOP
		i := i + 1;
		IF i = {page} THEN
			after := y.key || ' ' || y.owner;
		END IF;
		CONTINUE WHEN fencelock.live(y.session, mine);
		SELECT * INTO y FROM fencelock.sharer WHERE key = y.key AND owner = y.owner FOR UPDATE SKIP LOCKED;
		CONTINUE WHEN NOT FOUND;
		SELECT r.* INTO y.seen, y.client, rest FROM fencelock.remains(y.session, y.since, y.ttl, now_client, y.seen, y.client) r;
		IF rest <= 0 THEN
			DELETE FROM fencelock.sharer WHERE key = y.key AND owner = y.owner;
			n := n + 1;
		ELSE
			UPDATE fencelock.sharer SET seen = y.seen, client = y.client WHERE key = y.key AND owner = y.owner AND seen IS DISTINCT FROM y.seen;
		END IF;
	END LOOP;
END $$;

-- sweep_beat deletes the beat rows of sessions that have ended and have not been renewed for a
-- minute.
CREATE OR REPLACE FUNCTION fencelock.sweep_beat(mine integer, INOUT after integer, OUT n bigint)
LANGUAGE plpgsql AS $$
DECLARE
	page integer[] := ARRAY(SELECT session FROM fencelock.beat WHERE session > coalesce(after, 0) ORDER BY session LIMIT {page});
	dead integer[] := ARRAY(SELECT session FROM fencelock.beat
		WHERE session = ANY (page) AND at < clock_timestamp() - interval '1 minute' AND NOT fencelock.live(session, mine));
BEGIN
	n := cardinality(dead);
	IF n > 0 THEN
		PERFORM fencelock.bury(dead);
	END IF;
	after := page[{page}];
END $$;

-- bury deletes the beat rows of sessions that have ended and left no other rows. It runs with the
-- permissions of the schema's owner, like beat.
CREATE OR REPLACE FUNCTION fencelock.bury(dead integer[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	DELETE FROM fencelock.beat b WHERE session = ANY (dead) AND NOT fencelock.live(session, 0)
		AND NOT EXISTS (SELECT FROM fencelock.held h WHERE h.session = b.session AND owner IS NOT NULL)
		AND NOT EXISTS (SELECT FROM fencelock.sharer h WHERE h.session = b.session);
END $$;
