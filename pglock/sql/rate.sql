-- The functions for rate limits.

CREATE OR REPLACE FUNCTION fencelock.micros() RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
	RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
END $$;

-- take_rate grants events of total cost cost, or as many multiples of each as fit, as long as the
-- key is then no further ahead of the clock than most. A cost of 0 only queries and locks no row.
-- The clock is read after the row is locked, so that of two concurrent calls the second counts from
-- the first. If another transaction has just inserted or deleted the row, the loop looks for it
-- again.
CREATE OR REPLACE FUNCTION fencelock.take_rate(k text, cost bigint, most bigint, each bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	r fencelock.rate;
	now bigint;
	total bigint;
	got bigint := 0;
BEGIN
	IF cost = 0 THEN
		SELECT * INTO r FROM fencelock.rate x WHERE x.key = k;
		now := fencelock.micros();
		RETURN concat_ws('|', 0, now, greatest(0, coalesce(r.ahead, 0) - greatest(0, now - r.last)));
	END IF;
	LOOP
		SELECT * INTO r FROM fencelock.rate x WHERE x.key = k FOR UPDATE;
		EXIT WHEN FOUND;
		now := fencelock.micros();
		INSERT INTO fencelock.rate VALUES (k, now, cost) ON CONFLICT DO NOTHING;
		IF FOUND THEN
			RETURN concat_ws('|', cost, now, cost);
		END IF;
	END LOOP;
	now := fencelock.micros();
	total := greatest(0, r.ahead - greatest(0, now - r.last));
	IF total < most THEN
		got := least(cost, (most - total) / each * each);
		total := total + got;
	END IF;
	IF got > 0 OR now < r.last THEN -- if the clock was set back, count from here
		UPDATE fencelock.rate x SET last = now, ahead = total WHERE x.key = k;
	END IF;
	RETURN concat_ws('|', got, now, total);
END $$;

-- return_rate undoes a take that left the key at time at with total ahead, unless something was
-- granted since. Calling it twice has no further effect.
CREATE OR REPLACE FUNCTION fencelock.return_rate(k text, cost bigint, at bigint, total bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	UPDATE fencelock.rate x SET ahead = greatest(0, x.ahead - cost) WHERE x.key = k AND x.last = at AND x.ahead = total;
END $$;

-- reset_rate deletes the state of a key.
CREATE OR REPLACE FUNCTION fencelock.reset_rate(k text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM fencelock.rate x WHERE x.key = k;
END $$;

-- sweep_rates deletes the idle ones of the next thousand keys after one. It returns the last key
-- that it checked, NULL at the end.
CREATE OR REPLACE FUNCTION fencelock.sweep_rates(after text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	page text[] := ARRAY(SELECT key FROM fencelock.rate WHERE key > after ORDER BY key LIMIT 1000);
BEGIN
	DELETE FROM fencelock.rate WHERE key = ANY (ARRAY(SELECT key FROM fencelock.rate
		WHERE key = ANY (page) AND last + ahead < fencelock.micros() FOR UPDATE SKIP LOCKED));
	RETURN CASE WHEN cardinality(page) = 1000 THEN page[1000] END;
END $$;

-- For servers on which functions are not executable by PUBLIC by default.
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fencelock TO PUBLIC;

-- Some functions run with the permissions of their owner, which must be the schema's, also if a member
-- of that role has created them.
DO $$
DECLARE
	f record;
BEGIN
	FOR f IN SELECT p.oid::regprocedure AS name, n.nspowner::regrole AS owner FROM pg_proc p
			JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'fencelock' AND p.proowner <> n.nspowner LOOP
		EXECUTE format('ALTER FUNCTION %s OWNER TO %s', f.name, f.owner);
	END LOOP;
END $$;

-- A program that has later functions replaces these, if its role may.
COMMENT ON SCHEMA fencelock IS 'locks of fencelock; functions of revision {revision}';
