-- The functions that take and release locks. A session calls them with the function call protocol,
-- one message each, so that a broken connection cannot leave half a transaction behind. Each
-- statement in them has a snapshot of its own and sees what was committed before it, even after a
-- wait.
--
-- Parameters:
--   k     the key                         o  the owner of the request
--   n     the name                        t  the TTL in milliseconds
--   s     the session                     h, p, c  the holder's host, process and note (comment)
--   m     the request's ticket, 0 if it has none
--   cl    the client's clock, in microseconds since 1970. Negative if it was read before a wait; then
--         it cannot tell how long a lease still runs.
--   gone  owners, separated by spaces, whose rows the request need not wait for
--
-- They return words separated by "|": the verdict and its values. Verdicts:
--   ok (token, floor)
--   held
--   queued   another request is ahead
--   closed   (milliseconds) by a minimum hold
--   left     (milliseconds) by the lease of a vanished holder
--   full     (milliseconds) the limit is used up
--   limit    (the other limit) the limits differ
--   busy     ask again at once
--   again    the time of a wait is over

-- spent deletes the row of a ticket whose request is gone. It returns NULL if the request waits, else
-- how many rows it deleted: none if another client is just doing that. It keeps no lock; see live.
CREATE OR REPLACE FUNCTION fencelock.spent(k bigint, b bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
	id integer := (b & 2147483647)::integer;
	n integer;
BEGIN
	IF pg_try_advisory_lock_shared({ticket}, id) AND pg_advisory_unlock_shared({ticket}, id) THEN
		DELETE FROM fencelock.queued WHERE owner = (SELECT owner FROM fencelock.queued WHERE key = k AND ticket = b FOR UPDATE SKIP LOCKED);
		GET DIAGNOSTICS n = ROW_COUNT;
	END IF;
	RETURN n;
END $$;

-- ahead_of returns whether a live request waits ahead of ticket m. NULL means that {dead} requests
-- ahead are gone, and that the caller must ask again.
CREATE OR REPLACE FUNCTION fencelock.ahead_of(k bigint, m bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	b bigint;
	n integer := 0;
BEGIN
	FOR b IN SELECT ticket FROM fencelock.queued WHERE key = k AND ticket < coalesce(nullif(m, 0), 9223372036854775807)
			ORDER BY ticket LIMIT {dead} LOOP
		IF fencelock.spent(k, b) IS NULL THEN
			RETURN true;
		END IF;
		n := n + 1;
	END LOOP;
	RETURN CASE WHEN n < {dead} THEN false END;
END $$;

-- closed_by returns for how many milliseconds a minimum hold still closes the key. It is not in
-- language sql, because the server would parse and plan it again in each transaction.
CREATE OR REPLACE FUNCTION fencelock.closed_by(k bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT greatest(0, ceil(extract(epoch FROM not_before - clock_timestamp()) * 1000))::bigint
		FROM fencelock.minimum WHERE key = k);
END $$;

-- bar returns what blocks a request whose session has the key exclusively, besides the row of an
-- exclusive holder; NULL if nothing.
CREATE OR REPLACE FUNCTION fencelock.bar(k bigint, m bigint, cl bigint, gone text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	ms bigint := fencelock.closed_by(k);
	ahead boolean;
BEGIN
	IF ms > 0 THEN
		RETURN 'closed|' || ms;
	END IF;
	ahead := fencelock.ahead_of(k, m);
	IF ahead IS NOT false THEN
		RETURN CASE WHEN ahead THEN 'queued' ELSE 'busy' END;
	END IF;
	RETURN fencelock.left_by(k, NULL, cl, gone);
END $$;

-- left_by deletes the rows of vanished shared holders whose leases have expired, and returns how
-- long the first of the other leases still runs; NULL if there is none. mine is the session that
-- asks, or NULL if it has the key exclusively, because then all shared holders have vanished.
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

-- vanished handles the row of an exclusive holder that has no advisory lock. It clears the row if
-- the lease has expired and returns NULL. Otherwise it returns a verdict.
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
	-- From now on renewals of its session, which may be alive, do not count.
	UPDATE fencelock.held SET seen = x.seen, client = x.client WHERE key = k AND seen IS DISTINCT FROM x.seen;
	RETURN 'left|' || rest;
END $$;

-- take takes a free key. Unless the verdict is ok, the session does not have the key afterwards.
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
		-- This waits for a transaction that is releasing the key.
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

-- free releases a key, and returns whether the server has released the advisory lock.
CREATE OR REPLACE FUNCTION fencelock.free(k bigint, o text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	ok boolean;
BEGIN
	UPDATE fencelock.held SET owner = NULL WHERE key = k AND owner = o RETURNING pg_advisory_unlock(k) INTO ok;
	RETURN ok;
END $$;

-- share turns a request into a shared holder. have: the session already has the shared lock on the
-- key; otherwise share tries to get it. If share fails, the session has what it had before.
-- Requests for a key are serialized by an advisory lock (class {gate}). So each request counts all
-- earlier holders against its limit, lim, and its floor is not above a token that is not committed
-- yet. patient: wait for that lock.
CREATE OR REPLACE FUNCTION fencelock.share(k bigint, o text, n text, t bigint, s integer, h text, p integer, c text,
	m bigint, cl bigint, gone text, lim integer, units integer, have boolean, patient boolean) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	ahead boolean := false;
	verdict text;
BEGIN
	IF NOT have AND NOT pg_try_advisory_lock_shared(k) THEN
		RETURN 'held';
	END IF;
	IF EXISTS (SELECT FROM fencelock.queued WHERE key = k) THEN
		ahead := fencelock.ahead_of(k, m);
	END IF;
	IF ahead IS NOT false THEN
		verdict := CASE WHEN ahead THEN 'queued' ELSE 'busy' END;
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

-- seat is the serialized part of share.
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
	IF owned THEN -- no one can hold exclusively what this session shares
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

-- room returns why the limit leaves no capacity for a request; NULL if it does. full comes with the
-- milliseconds until the lease of a vanished holder expires, if there is one.
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

-- leave ends a shared hold. The last one of a session releases the advisory lock.
CREATE OR REPLACE FUNCTION fencelock.leave(k bigint, o text, last boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	ok boolean;
BEGIN
	DELETE FROM fencelock.sharer WHERE owner = o AND key = k
	RETURNING CASE WHEN last THEN pg_advisory_unlock_shared(k) ELSE true END INTO ok;
	RETURN ok;
END $$;
