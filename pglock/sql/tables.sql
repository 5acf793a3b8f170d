-- The schema that pglock keeps in a database. The locks are PostgreSQL's advisory locks; these
-- tables hold what advisory locks cannot store. Run this in one transaction. If the schema exists
-- already, this replaces its functions and locks no table.

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
	-- The fencing tokens. Whatever may set the sequence back also sets it forward to the current
	-- time, in units of 2^-30 s; see fencelock.restart.
	CREATE SEQUENCE fencelock.token AS bigint;
	CREATE SEQUENCE fencelock.ticket AS bigint CYCLE;
	CREATE SEQUENCE fencelock.session_id AS integer CYCLE;

	-- Identifies where the sequence has been counting. system combines the cluster, the database
	-- (which may be a copy) and this table (which a restored dump creates again).
	CREATE TABLE fencelock.epoch (
		one      boolean PRIMARY KEY DEFAULT true CHECK (one),
		system   bigint NOT NULL,
		timeline bigint NOT NULL,
		max_ttl  bigint NOT NULL, -- milliseconds
		sure_ttl bigint NOT NULL, -- the part of max_ttl that the synchronous standbys have, too
		version  integer NOT NULL -- of this schema
	);
	INSERT INTO fencelock.epoch VALUES (true, 0, 0, 0, 0, {version});

	-- When the server last lost its locks, by the clocks of the server and of the client that found
	-- out. Like all unlogged tables it is empty after a crash or a promotion. A new schema has
	-- nothing to wait for.
	CREATE UNLOGGED TABLE fencelock.start (
		one     boolean PRIMARY KEY DEFAULT true CHECK (one),
		started timestamptz NOT NULL,
		since   timestamptz NOT NULL,
		client  bigint NOT NULL -- microseconds since 1970
	);
	INSERT INTO fencelock.start VALUES (true, pg_postmaster_start_time(), '-infinity', 0);

	-- When each session was last renewed. The statement that renews writes it, so that the next
	-- holder of a lock sees the last renewal that its predecessor knows of. Only fencelock.beat
	-- writes it: a role that could lock a row could keep a holder from renewing.
	CREATE UNLOGGED TABLE fencelock.beat (
		session integer PRIMARY KEY,
		backend integer NOT NULL,     -- the server's process
		at      timestamptz NOT NULL, -- by the server's clock
		client  bigint NOT NULL -- by the holder's clock before it sent the renewal; microseconds since 1970
	) WITH (fillfactor = 50, vacuum_truncate = false);

	-- The exclusive holders: one row for each key, which is reused. The statement that takes the
	-- lock writes the row, and the one that releases it clears it (owner is null). A client that
	-- gets the lock and finds an owner therefore knows that the owner vanished. No changing column
	-- is indexed, so that updates stay in the page.
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
		seen    timestamptz, -- of an owner that vanished: its last renewal, or, if that is unknown, when a successor found out
		client  bigint -- the same by the client's clock, in microseconds since 1970; before that, since by the owner's clock
	) WITH (fillfactor = 50);

	-- The shared holders.
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

	-- The waiters. A request that waits only in its process has no ticket.
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

	-- Minimum holds, which survive crashes.
	CREATE TABLE fencelock.minimum (
		key        bigint PRIMARY KEY,
		name       text NOT NULL,
		not_before timestamptz NOT NULL
	);

	-- Limits set by Resize: each replaces the limits of the requests for the name.
	CREATE TABLE fencelock.resized (
		key   bigint PRIMARY KEY,
		name  text NOT NULL,
		seats integer NOT NULL
	);

	-- Records: values that change only from the version that was read. Like the epoch they are
	-- accessible only to the schema's owner, because they may contain confidential answers and
	-- payments.
	CREATE TABLE fencelock.record (
		key     text PRIMARY KEY,
		version text NOT NULL,
		value   bytea NOT NULL,
		expires timestamptz -- null: never
	);
	CREATE INDEX record_expires ON fencelock.record (expires) WHERE expires IS NOT NULL;

	-- Rates: how far the granted events of a key are ahead of the clock, and when that was stored.
	-- A crash loses at most one burst per key, so the table is unlogged.
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
