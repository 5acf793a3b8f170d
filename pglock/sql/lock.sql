-- The functions that take and release locks. A session calls them with the protocol's
-- function calls, one message each, so that no connection that breaks can leave half
-- a transaction behind. Each statement in them has a snapshot of its own, and sees what
-- was committed before it, also after a wait.
--
-- Their arguments: k is the key, o the owner of the request, n the name, t the TTL in
-- milliseconds, s the session, h, p and c the holder's host, process and note (comment).
-- m is the request's ticket, 0 if it has none. cl is the client's clock, in microseconds
-- since 1970; it is negative if it is of before a wait, and cannot say how long a lease still
-- runs. gone are the owners, separated by spaces, whose rows the request need not wait for.
--
-- They return words separated by "|": the verdict and what belongs to it. Verdicts are
-- ok (token, floor), held, queued (somebody is before the request), closed (milliseconds,
-- by a minimum hold), left (milliseconds, by the lease of a vanished holder), full (no seat: milliseconds), limit (the
-- other one), busy (ask again at once) and again (the time of a wait is over).

-- ahead says whether a request that waits is before one with ticket m.
CREATE OR REPLACE FUNCTION fencelock.ahead_of(k bigint, m bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	b bigint;
BEGIN
	FOR b IN SELECT ticket FROM fencelock.queued WHERE key = k AND ticket < coalesce(nullif(m, 0), 9223372036854775807) ORDER BY ticket LOOP
		IF NOT pg_try_advisory_xact_lock_shared({ticket}, (b & 2147483647)::integer) THEN
			RETURN true;
		END IF;
	END LOOP;
	RETURN false;
END $$;

-- closed_by is for how many milliseconds a minimum hold closes the key. It is not of language
-- sql: the server would parse and plan it again for each transaction.
CREATE OR REPLACE FUNCTION fencelock.closed_by(k bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT greatest(0, ceil(extract(epoch FROM not_before - clock_timestamp()) * 1000))::bigint
		FROM fencelock.minimum WHERE key = k);
END $$;

-- bar says what bars a request whose session has got the key exclusively, besides the
-- holder's row; NULL is nothing.
CREATE OR REPLACE FUNCTION fencelock.bar(k bigint, m bigint, cl bigint, gone text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	ms bigint := fencelock.closed_by(k);
BEGIN
	IF ms > 0 THEN
		RETURN 'closed|' || ms;
	END IF;
	IF fencelock.ahead_of(k, m) THEN
		RETURN 'queued';
	END IF;
	RETURN fencelock.left_by(k, NULL, cl, gone);
END $$;

-- left_by looks at the rows of shared holders that vanished: it deletes those whose leases are
-- over, and says for how long the first of the others runs yet; NULL if there is none. mine is
-- the session that asks, or NULL if it has the key exclusively, so that all rows are of such.
CREATE OR REPLACE FUNCTION fencelock.left_by(k bigint, mine integer, cl bigint, gone text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	y fencelock.sharer;
	rest bigint;
	wait bigint;
BEGIN
	FOR y IN SELECT * FROM fencelock.sharer WHERE key = k
			AND (mine IS NULL OR seen IS NOT NULL OR NOT fencelock.live(session, mine)) FOR UPDATE LOOP
		SELECT r.* INTO y.seen, y.client, rest FROM fencelock.remains(y.session, y.since, y.ttl, cl, y.seen, y.client) r;
		IF rest <= 0 OR y.owner = ANY (string_to_array(gone, ' ')) THEN
			DELETE FROM fencelock.sharer WHERE key = k AND owner = y.owner;
			CONTINUE;
		ELSIF cl < 0 THEN
			RETURN 'again';
		END IF;
		UPDATE fencelock.sharer SET seen = y.seen, client = y.client WHERE key = k AND owner = y.owner AND seen IS DISTINCT FROM y.seen;
		wait := least(wait, rest);
	END LOOP;
	RETURN 'left|' || wait;
END $$;

-- vanished looks at the row of an exclusive holder whom the advisory lock does not show: it
-- frees the row if the lease is over, and returns NULL, or says who is in the way.
CREATE OR REPLACE FUNCTION fencelock.vanished(k bigint, cl bigint, gone text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	x fencelock.held;
	rest bigint;
BEGIN
	SELECT * INTO x FROM fencelock.held WHERE key = k AND owner IS NOT NULL FOR UPDATE;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	SELECT r.* INTO x.seen, x.client, rest FROM fencelock.remains(x.session, x.since, x.ttl, cl, x.seen, x.client) r;
	IF rest <= 0 OR x.owner = ANY (string_to_array(gone, ' ')) THEN
		UPDATE fencelock.held SET owner = NULL WHERE key = k;
		RETURN NULL;
	ELSIF cl < 0 THEN
		RETURN 'again';
	END IF;
	-- From now on the beats of its session, which may live, do not count.
	UPDATE fencelock.held SET seen = x.seen, client = x.client WHERE key = k AND seen IS DISTINCT FROM x.seen;
	RETURN 'left|' || rest;
END $$;

-- take takes a free key. If it does not, the session has not got the key.
CREATE OR REPLACE FUNCTION fencelock.take(k bigint, o text, n text, t bigint, s integer, h text, p integer, c text,
	m bigint, cl bigint, gone text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	tok bigint;
	verdict text;
BEGIN
	IF NOT pg_try_advisory_lock(k) THEN
		RETURN 'held';
	END IF;
	IF EXISTS (SELECT FROM fencelock.queued WHERE key = k AND ticket < coalesce(nullif(m, 0), 9223372036854775807))
		OR EXISTS (SELECT FROM fencelock.sharer WHERE key = k) OR EXISTS (SELECT FROM fencelock.minimum WHERE key = k) THEN
		verdict := fencelock.bar(k, m, cl, gone);
	END IF;
	WHILE verdict IS NULL LOOP
		-- It waits for the end of a transaction that is releasing.
		INSERT INTO fencelock.held AS x
		VALUES (k, o, n, nextval('fencelock.token'), t, s, clock_timestamp(), h, p, c, NULL, abs(cl))
		ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, name = excluded.name, token = excluded.token,
			ttl = excluded.ttl, session = excluded.session, since = excluded.since,
			host = excluded.host, pid = excluded.pid, note = excluded.note, seen = NULL, client = excluded.client
		WHERE x.owner IS NULL
		RETURNING x.token INTO tok;
		IF tok IS NOT NULL THEN
			RETURN 'ok|' || tok;
		END IF;
		verdict := fencelock.vanished(k, cl, gone);
	END LOOP;
	PERFORM pg_advisory_unlock(k);
	RETURN verdict;
END $$;

-- free releases a key, and says whether the server has let go.
CREATE OR REPLACE FUNCTION fencelock.free(k bigint, o text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	ok boolean;
BEGIN
	UPDATE fencelock.held SET owner = NULL WHERE key = k AND owner = o RETURNING pg_advisory_unlock(k) INTO ok;
	RETURN ok;
END $$;

-- share makes a shared holder of a request whose session has the shared lock on the key
-- already (have), or tries to get it. If it fails, the session has what it had. Requests
-- for a key go through a gate, one at a time: each counts those before it for a limit, lim,
-- and its floor is not above a token that is not committed yet. patient requests may wait
-- for the gate.
CREATE OR REPLACE FUNCTION fencelock.share(k bigint, o text, n text, t bigint, s integer, h text, p integer, c text,
	m bigint, cl bigint, gone text, lim integer, units integer, have boolean, patient boolean) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	verdict text;
BEGIN
	IF NOT have AND NOT pg_try_advisory_lock_shared(k) THEN
		RETURN 'held';
	END IF;
	IF EXISTS (SELECT FROM fencelock.queued WHERE key = k) AND fencelock.ahead_of(k, m) THEN
		verdict := 'queued';
	ELSIF patient THEN
		PERFORM pg_advisory_xact_lock({gate}, hashint8(k));
	ELSIF NOT pg_try_advisory_xact_lock({gate}, hashint8(k)) THEN
		verdict := 'busy';
	END IF;
	verdict := coalesce(verdict, fencelock.seat(k, o, n, t, s, h, p, c, cl, gone, lim, units));
	IF NOT have AND left(verdict, 2) <> 'ok' THEN
		PERFORM pg_advisory_unlock_shared(k);
	END IF;
	RETURN verdict;
END $$;

-- seat is the part of share inside the gate.
CREATE OR REPLACE FUNCTION fencelock.seat(k bigint, o text, n text, t bigint, s integer, h text, p integer, c text,
	cl bigint, gone text, lim integer, units integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	closed boolean;
	owned boolean;
	counted boolean;
	low bigint;
	tok bigint;
	verdict text;
BEGIN
	SELECT EXISTS (SELECT FROM fencelock.minimum WHERE key = k),
		EXISTS (SELECT FROM fencelock.held WHERE key = k AND owner IS NOT NULL), lim > 0 OR bool_or(seats <> 0), min(token)
	INTO closed, owned, counted, low FROM fencelock.sharer WHERE key = k;
	IF closed AND fencelock.closed_by(k) > 0 THEN
		RETURN 'closed|' || fencelock.closed_by(k);
	END IF;
	IF owned THEN -- nobody holds exclusively what we share
		verdict := fencelock.vanished(k, cl, gone);
	END IF;
	IF verdict IS NULL AND counted THEN
		verdict := fencelock.room(k, s, cl, gone, lim, units);
	END IF;
	IF verdict IS NOT NULL THEN
		RETURN verdict;
	END IF;
	INSERT INTO fencelock.sharer VALUES (o, k, n, nextval('fencelock.token'), t, s, clock_timestamp(), h, p, c, lim, units, NULL, abs(cl))
	RETURNING token INTO tok;
	RETURN concat_ws('|', 'ok', tok, least(tok, low));
END $$;

-- room says why there is no seat for a request, where seats are counted; NULL if there is. full
-- comes with the milliseconds until the lease of a vanished holder ends, if there is one.
CREATE OR REPLACE FUNCTION fencelock.room(k bigint, s integer, cl bigint, gone text, lim integer, units integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	most integer := coalesce((SELECT seats FROM fencelock.resized WHERE key = k), 0);
	taken bigint;
	other integer;
	verdict text;
BEGIN
	FOR look IN 1 .. 2 LOOP
		SELECT sum(weight), max(seats) FILTER (WHERE seats <> lim AND (most = 0 OR seats = 0 OR lim = 0))
		INTO taken, other FROM fencelock.sharer WHERE key = k;
		IF other IS NULL AND (lim = 0 OR taken IS NULL OR taken + units <= coalesce(nullif(most, 0), lim)) THEN
			RETURN NULL;
		END IF;
		EXIT WHEN look = 2;
		verdict := fencelock.left_by(k, s, cl, gone);
	END LOOP;
	IF other IS NULL THEN
		RETURN coalesce(replace(verdict, 'left', 'full'), 'full');
	ELSIF EXISTS (SELECT FROM fencelock.sharer WHERE key = k AND seats <> lim AND fencelock.live(session, s)) THEN
		RETURN 'limit|' || other;
	END IF;
	RETURN verdict;
END $$;

-- leave ends a shared hold. The last one of a session gives the lock back.
CREATE OR REPLACE FUNCTION fencelock.leave(k bigint, o text, last boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	ok boolean;
BEGIN
	DELETE FROM fencelock.sharer WHERE owner = o AND key = k
	RETURNING CASE WHEN last THEN pg_advisory_unlock_shared(k) ELSE true END INTO ok;
	RETURN ok;
END $$;
