-- What pglock keeps in a database. Locks themselves are PostgreSQL's advisory
-- locks; these tables hold what those cannot say. Run it in one transaction. Running
-- it again completes an older schema, and takes no lock on a table that is there.

SET LOCAL synchronous_commit = on;
SET LOCAL lock_timeout = '5s';
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT pg_advisory_xact_lock({schema}, 0);

CREATE SCHEMA IF NOT EXISTS fencelock;

-- The tables of version 1, as far as they are still used.
DO $$
BEGIN
	IF to_regclass('fencelock.epoch') IS NULL THEN
		-- A fencing token is (epoch << 40) + token, where epoch never changes: it was
		-- counted by version 1. Whatever may set the sequence back sets it forward to
		-- the time instead, in units of 2^-30 s; see fencelock.restart.
		CREATE SEQUENCE fencelock.token AS bigint;
		CREATE SEQUENCE fencelock.session_id AS integer CYCLE;

		-- A client of version 1 that completes the schema in its way gets here.
		CREATE FUNCTION fencelock.newer() RETURNS integer LANGUAGE plpgsql AS $newer$
		BEGIN
			RAISE EXCEPTION 'the schema fencelock is of a newer version than this program: update the program'
				USING ERRCODE = 'object_not_in_prerequisite_state';
		END $newer$;

		-- Where the sequence has been counting: system is of the cluster, of the database,
		-- which may be a copy of another, and of this very table, which a restored dump
		-- creates anew.
		CREATE TABLE fencelock.epoch (
			one      boolean PRIMARY KEY DEFAULT true CHECK (one),
			epoch    bigint NOT NULL,
			system   bigint NOT NULL,
			timeline bigint NOT NULL,
			max_ttl  bigint NOT NULL DEFAULT 0, -- milliseconds
			version  integer NOT NULL DEFAULT fencelock.newer() -- of this schema
		);
		INSERT INTO fencelock.epoch (epoch, system, timeline, version) VALUES (0, 0, 0, 0);

		-- Minimum holds, which survive everything.
		CREATE TABLE fencelock.minimum (
			key        bigint PRIMARY KEY,
			name       text NOT NULL,
			not_before timestamptz NOT NULL
		);

		-- Limits that were set while names were in use: each takes the place of the
		-- limit of every request that has one.
		CREATE TABLE fencelock.resized (
			key   bigint PRIMARY KEY,
			name  text NOT NULL,
			seats integer NOT NULL
		);
	END IF;
END $$;

-- The tables of version 2.
DO $$
BEGIN
	IF to_regclass('fencelock.held') IS NOT NULL THEN
		RETURN;
	END IF;
	CREATE SEQUENCE fencelock.ticket AS bigint CYCLE;

	-- Since when nobody can hold what an earlier life of the server granted, by the
	-- clocks of the server and of the client that saw it first. Empty after a crash or a
	-- promotion, as all unlogged tables are.
	CREATE UNLOGGED TABLE fencelock.start (
		one     boolean PRIMARY KEY DEFAULT true CHECK (one),
		started timestamptz NOT NULL,
		since   timestamptz NOT NULL,
		client  bigint NOT NULL -- milliseconds since 1970
	);
	-- A first use has nothing to wait for, unless it is of a version 1 in its quarantine.
	IF to_regclass('fencelock.incarnation') IS NULL THEN
		INSERT INTO fencelock.start VALUES (true, pg_postmaster_start_time(), '-infinity', 0);
	ELSE
		INSERT INTO fencelock.start SELECT true, started, since, extract(epoch FROM since) * 1000
		FROM fencelock.incarnation WHERE since > '-infinity';
		INSERT INTO fencelock.start SELECT true, started, since, 0
		FROM fencelock.incarnation WHERE since = '-infinity';
	END IF;

	-- Who holds exclusively: one row for each key, which is used again and again. It is
	-- written by the statement that takes the lock, and freed (owner is null) by the one
	-- that releases it, so that whoever gets the lock and finds an owner knows that this
	-- one vanished. No index is on what changes, so that updates stay in the page.
	CREATE UNLOGGED TABLE fencelock.held (
		key     bigint PRIMARY KEY,
		owner   text,
		name    text NOT NULL,
		token   bigint NOT NULL,
		ttl     bigint NOT NULL, -- milliseconds
		session integer NOT NULL,
		since   timestamptz NOT NULL,
		host    text NOT NULL,
		pid     integer NOT NULL,
		note    text NOT NULL,
		seen    timestamptz, -- of an owner that vanished: its last renewal, or, if nobody knows it, when a successor found that
		client  bigint       -- the same by the owner's clock, or the successor's, in microseconds since 1970; before, since by the owner's
	) WITH (fillfactor = 50);

	-- Who holds together with others.
	CREATE UNLOGGED TABLE fencelock.sharer (
		owner   text NOT NULL,
		key     bigint NOT NULL,
		name    text NOT NULL,
		token   bigint NOT NULL,
		ttl     bigint NOT NULL,
		session integer NOT NULL,
		since   timestamptz NOT NULL,
		host    text NOT NULL,
		pid     integer NOT NULL,
		note    text NOT NULL,
		seats   integer NOT NULL, -- the limit it asked for; 0 means none
		weight  integer NOT NULL,
		seen    timestamptz,
		client  bigint,
		PRIMARY KEY (key, owner)
	);

	-- Who waits. A request that waits in its process only has no ticket.
	CREATE UNLOGGED TABLE fencelock.queued (
		owner   text PRIMARY KEY,
		key     bigint NOT NULL,
		name    text NOT NULL,
		ticket  bigint,
		shared  boolean NOT NULL,
		session integer NOT NULL,
		since   timestamptz NOT NULL,
		host    text NOT NULL,
		pid     integer NOT NULL,
		note    text NOT NULL,
		seats   integer NOT NULL,
		weight  integer NOT NULL
	);
	CREATE INDEX queued_key ON fencelock.queued (key, ticket);

	GRANT USAGE ON SCHEMA fencelock TO PUBLIC;
	GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock.held, fencelock.sharer, fencelock.queued,
		fencelock.minimum, fencelock.resized TO PUBLIC;
	GRANT SELECT ON fencelock.start, fencelock.epoch TO PUBLIC;
	GRANT USAGE, SELECT ON SEQUENCE fencelock.token, fencelock.ticket, fencelock.session_id TO PUBLIC;
	REVOKE INSERT, UPDATE, DELETE ON fencelock.epoch FROM PUBLIC;
END $$;

DO $$
BEGIN
	IF to_regclass('fencelock.beat') IS NOT NULL THEN
		RETURN;
	END IF;
	-- When each session was last renewed: written by the statement that renews, so that whoever gets
	-- a lock of a session that has ended sees the last renewal its holder has heard of. Only
	-- fencelock.beat writes it: who could lock a row could keep a holder from renewing.
	CREATE UNLOGGED TABLE fencelock.beat (
		session integer PRIMARY KEY,
		backend integer NOT NULL,     -- the server's process
		at      timestamptz NOT NULL, -- by the server's clock
		client  bigint NOT NULL       -- by the holder's, before it sent the renewal; microseconds since 1970
	) WITH (fillfactor = 50, vacuum_truncate = false);
	GRANT SELECT ON fencelock.beat TO PUBLIC;
END $$;
