-- join puts a request into the queue of a key, and returns its ticket and its place. A ticket is
-- valid as long as its advisory lock is held: if anyone else can lock it, the request is gone,
-- whatever its row says.
CREATE OR REPLACE FUNCTION fencelock.join(k bigint, o text, n text, t bigint, s integer, h text, p integer, c text,
	together boolean, lim integer, units integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	m bigint := nextval('fencelock.ticket');
	b bigint;
	place bigint;
BEGIN
	PERFORM pg_advisory_lock({ticket}, (m & 2147483647)::integer);
	INSERT INTO fencelock.queued VALUES (o, k, n, m, together, s, clock_timestamp(), h, p, c, lim, units)
	ON CONFLICT (owner) DO UPDATE SET ticket = excluded.ticket, session = excluded.session;
	place := 1 + (SELECT count(*) FROM fencelock.queued WHERE key = k AND ticket < m);
	FOR b IN SELECT ticket FROM fencelock.queued WHERE key = k AND ticket < m ORDER BY ticket LIMIT {dead} LOOP
		IF fencelock.spent(k, b) IS NOT NULL THEN
			place := place - 1;
		END IF;
	END LOOP;
	RETURN m || '|' || place;
END $$;

-- leave_queue takes a request out of the queue, also after its grant.
CREATE OR REPLACE FUNCTION fencelock.leave_queue(o text, m bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM fencelock.queued WHERE owner = o;
	PERFORM pg_advisory_unlock({ticket}, (m & 2147483647)::integer);
END $$;

-- give_up is leave_queue for a session that ends next. Unless the request was granted, the session's
-- beat row goes too.
CREATE OR REPLACE FUNCTION fencelock.give_up(o text, m bigint, k bigint, s integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencelock.leave_queue(o, m);
	IF NOT EXISTS (SELECT FROM fencelock.held WHERE key = k AND owner = o) AND NOT EXISTS (SELECT FROM fencelock.sharer WHERE key = k AND owner = o) THEN
		PERFORM fencelock.retire(s);
	END IF;
END $$;

-- turn waits until no ticket before m is left, and then for the key, for as long as the session's
-- lock_timeout allows. It waits for transaction-level locks, which are released when it fails; a
-- session-level lock might remain when its wait is cancelled. If it meets requests that are gone, it
-- deletes their rows and returns before it waits, so that no wait keeps rows locked.
CREATE OR REPLACE FUNCTION fencelock.turn(k bigint, m bigint, together boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	b bigint := m;
	rows integer;
	deleted integer := 0;
BEGIN
	LOOP
		b := (SELECT max(ticket) FROM fencelock.queued WHERE key = k AND ticket < b);
		rows := fencelock.spent(k, b);
		deleted := deleted + coalesce(rows, 0);
		CONTINUE WHEN rows IS NOT NULL AND deleted < {dead};
		IF deleted > 0 THEN
			RETURN false;
		END IF;
		EXIT WHEN b IS NULL;
		PERFORM pg_advisory_xact_lock_shared({ticket}, (b & 2147483647)::integer);
	END LOOP;
	IF together THEN
		PERFORM pg_advisory_xact_lock_shared(k);
	ELSE
		PERFORM pg_advisory_xact_lock(k);
	END IF;
	RETURN true;
EXCEPTION WHEN lock_not_available THEN
	RETURN false;
END $$;

-- extend is the first heartbeat after a grant that ended a wait. It extends the lease to the
-- holder's full TTL.
CREATE OR REPLACE FUNCTION fencelock.extend(k bigint, o text, t bigint, s integer, cl bigint) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
	UPDATE fencelock.held SET ttl = t WHERE key = k AND owner = o;
	UPDATE fencelock.sharer SET ttl = t WHERE key = k AND owner = o;
	RETURN fencelock.beat(s, cl);
END $$;

-- aged marks a client's clock that was read a while ago. If the time matters, the client asks
-- again.
CREATE OR REPLACE FUNCTION fencelock.aged(cl bigint, began timestamptz) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN clock_timestamp() BETWEEN began AND began + interval '20 ms' THEN cl ELSE -abs(cl) END;
END $$;

-- await waits for the key exclusively, with ticket m. Unless the verdict is ok, the session does
-- not have the key, and the ticket keeps later requests waiting.
CREATE OR REPLACE FUNCTION fencelock.await(k bigint, o text, n text, t bigint, s integer, h text, p integer, c text,
	m bigint, cl bigint, gone text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	verdict text;
	began timestamptz := clock_timestamp();
BEGIN
	IF NOT fencelock.turn(k, m, false) THEN
		RETURN 'again';
	END IF;
	verdict := fencelock.take(k, o, n, t, s, h, p, c, m, fencelock.aged(cl, began), gone); -- the transaction has the key
	IF left(verdict, 2) = 'ok' THEN
		PERFORM fencelock.leave_queue(o, m);
	END IF;
	RETURN verdict;
END $$;

-- await_shared waits for the key in shared mode. Unless the verdict is ok, the session does not
-- have the key.
CREATE OR REPLACE FUNCTION fencelock.await_shared(k bigint, o text, n text, t bigint, s integer, h text, p integer, c text,
	m bigint, cl bigint, gone text, lim integer, units integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	verdict text;
	began timestamptz := clock_timestamp();
BEGIN
	IF NOT fencelock.turn(k, m, true) THEN
		RETURN 'again';
	END IF;
	verdict := fencelock.share(k, o, n, t, s, h, p, c, m, fencelock.aged(cl, began), gone, lim, units, false, true);
	IF left(verdict, 2) = 'ok' THEN
		PERFORM fencelock.leave_queue(o, m);
	END IF;
	RETURN verdict;
EXCEPTION WHEN lock_not_available THEN -- in share, when the session had the key already
	PERFORM pg_advisory_unlock_shared(k);
	RETURN 'again';
END $$;

-- await_seat is await_shared for a request that found no capacity. It polls for up to a tenth of a
-- second until there seems to be some. Meanwhile it has no lock and changes nothing.
CREATE OR REPLACE FUNCTION fencelock.await_seat(k bigint, o text, n text, t bigint, s integer, h text, p integer, c text,
	m bigint, cl bigint, gone text, lim integer, units integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz := clock_timestamp();
BEGIN
	FOR i IN 1 .. 100 LOOP
		PERFORM pg_sleep(0.001);
		EXIT WHEN (SELECT coalesce(sum(weight) + units <= coalesce((SELECT nullif(seats, 0) FROM fencelock.resized WHERE key = k), lim), true)
			FROM fencelock.sharer WHERE key = k);
	END LOOP;
	RETURN fencelock.await_shared(k, o, n, t, s, h, p, c, m, fencelock.aged(cl, began), gone, lim, units);
END $$;

-- resize sets the limit of a key for all clients.
CREATE OR REPLACE FUNCTION fencelock.resize(k bigint, n text, lim integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencelock.durable();
	PERFORM pg_advisory_xact_lock({gate}, hashint8(k));
	INSERT INTO fencelock.resized VALUES (k, n, lim)
	ON CONFLICT (key) DO UPDATE SET name = excluded.name, seats = excluded.seats;
END $$;

-- close stores a minimum hold, durably.
CREATE OR REPLACE FUNCTION fencelock.close(k bigint, n text, ms bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencelock.durable();
	INSERT INTO fencelock.minimum AS m VALUES (k, n, clock_timestamp() + ms * interval '1 ms')
	ON CONFLICT (key) DO UPDATE SET name = excluded.name, not_before = greatest(m.not_before, excluded.not_before);
END $$;

-- ready runs the functions once, so that the server has parsed them before the first lock. The
-- caller rolls it back.
CREATE OR REPLACE FUNCTION fencelock.ready(s integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fencelock.take(-s, '', '', 1, s, '', 0, '', 0, 0, '');
	PERFORM fencelock.free(-s, '');
END $$;
