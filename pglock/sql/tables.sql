-- What pglock keeps in a database. Locks themselves are PostgreSQL's advisory
-- locks; these tables hold what those cannot say. Run it in one transaction. Where the schema
-- is there already, it makes the functions anew, and takes no lock on a table.

SET LOCAL synchronous_commit = on;
SET LOCAL lock_timeout = '5s';
SET LOCAL search_path = pg_catalog, pg_temp;
SELECT pg_advisory_xact_lock({schema}, 0);

DO $$
DECLARE
	v integer;
BEGIN
	IF to_regclass('fencelock.epoch') IS NOT NULL THEN
		SELECT version INTO v FROM fencelock.epoch;
		IF v <> {version} THEN
			RAISE EXCEPTION 'the schema fencelock is of version %, and this program needs version {version}: {remedy}', v
				USING ERRCODE = 'object_not_in_prerequisite_state';
		END IF;
	END IF;
END $$;

CREATE SCHEMA IF NOT EXISTS fencelock;

DO $$
BEGIN
	IF to_regclass('fencelock.epoch') IS NOT NULL THEN
		RETURN;
	END IF;
	-- The fencing tokens. Whatever may set the sequence back sets it forward to the time
	-- instead, in units of 2^-30 s; see fencelock.restart.
	CREATE SEQUENCE fencelock.token AS bigint;
	CREATE SEQUENCE fencelock.ticket AS bigint CYCLE;
	CREATE SEQUENCE fencelock.session_id AS integer CYCLE;

	-- Where the sequence has been counting: system is of the cluster, of the database,
	-- which may be a copy of another, and of this very table, which a restored dump
	-- creates anew.
	CREATE TABLE fencelock.epoch (
		one      boolean PRIMARY KEY DEFAULT true CHECK (one),
		system   bigint NOT NULL,
		timeline bigint NOT NULL,
		max_ttl  bigint NOT NULL, -- milliseconds
		version  integer NOT NULL -- of this schema
	);
	INSERT INTO fencelock.epoch VALUES (true, 0, 0, 0, {version});

	-- Since when nobody can hold what an earlier life of the server granted, by the
	-- clocks of the server and of the client that saw it first. Empty after a crash or a
	-- promotion, as all unlogged tables are. A first use has nothing to wait for.
	CREATE UNLOGGED TABLE fencelock.start (
		one     boolean PRIMARY KEY DEFAULT true CHECK (one),
		started timestamptz NOT NULL,
		since   timestamptz NOT NULL,
		client  bigint NOT NULL -- microseconds since 1970
	);
	INSERT INTO fencelock.start VALUES (true, pg_postmaster_start_time(), '-infinity', 0);

	-- When each session was last renewed: written by the statement that renews, so that whoever gets
	-- a lock of a session that has ended sees the last renewal its holder has heard of. Only
	-- fencelock.beat writes it: who could lock a row could keep a holder from renewing.
	CREATE UNLOGGED TABLE fencelock.beat (
		session integer PRIMARY KEY,
		backend integer NOT NULL,     -- the server's process
		at      timestamptz NOT NULL, -- by the server's clock
		client  bigint NOT NULL       -- by the holder's, before it sent the renewal; microseconds since 1970
	) WITH (fillfactor = 50, vacuum_truncate = false);

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

	-- Records: values that change only from the version that was read. They are their owner's
	-- alone, like the epoch: they say what was done and paid, and hold answers that are for one client.
	CREATE TABLE fencelock.record (
		key     text PRIMARY KEY,
		version text NOT NULL,
		value   bytea NOT NULL,
		expires timestamptz -- null if never
	);
	CREATE INDEX record_expires ON fencelock.record (expires) WHERE expires IS NOT NULL;

	-- Rates: how far the events that were granted for a key are ahead of the clock, and when
	-- that was true. What a crash forgets is one burst of each key, so nothing of it is logged.
	CREATE UNLOGGED TABLE fencelock.rate (
		key   text PRIMARY KEY,
		last  bigint NOT NULL, -- microseconds since 1970
		ahead bigint NOT NULL  -- microseconds
	) WITH (fillfactor = 50);

	GRANT USAGE ON SCHEMA fencelock TO PUBLIC;
	GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock.held, fencelock.sharer, fencelock.queued,
		fencelock.minimum, fencelock.resized, fencelock.rate TO PUBLIC;
	REVOKE ALL ON fencelock.start, fencelock.epoch, fencelock.beat, fencelock.record FROM PUBLIC;
	GRANT SELECT ON fencelock.start, fencelock.epoch, fencelock.beat TO PUBLIC;
	GRANT USAGE, SELECT ON SEQUENCE fencelock.token, fencelock.ticket, fencelock.session_id TO PUBLIC;
END $$;
