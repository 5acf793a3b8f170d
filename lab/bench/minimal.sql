-- One row for each key, used again and again; each statement has a snapshot of its own.
CREATE SEQUENCE IF NOT EXISTS minimal_token;
CREATE UNLOGGED TABLE IF NOT EXISTS minimal_held (
	key   bigint PRIMARY KEY,
	name  text NOT NULL,
	owner text,
	ttl   bigint NOT NULL,
	token bigint NOT NULL
) WITH (fillfactor = 50);

CREATE OR REPLACE FUNCTION minimal_take(k bigint, n text, o text, t bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	tok bigint;
BEGIN
	PERFORM pg_advisory_lock(k);
	INSERT INTO minimal_held AS x VALUES (k, n, o, t, nextval('minimal_token'))
	ON CONFLICT (key) DO UPDATE SET name = excluded.name, owner = excluded.owner, ttl = excluded.ttl, token = excluded.token
	WHERE x.owner IS NULL
	RETURNING x.token INTO tok;
	RETURN coalesce(tok, 0);
END $$;

CREATE OR REPLACE FUNCTION minimal_free(k bigint, o text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	freed boolean;
BEGIN
	UPDATE minimal_held SET owner = NULL WHERE key = k AND owner = o RETURNING pg_advisory_unlock(k) INTO freed;
	RETURN freed;
END $$;
