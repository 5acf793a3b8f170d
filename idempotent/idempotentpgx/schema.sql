-- What was done once: a row for each key, in the transaction that did it.
CREATE TABLE IF NOT EXISTS fencelock_once (
	key     text PRIMARY KEY,
	payload text NOT NULL, -- the SHA-256 of what the job depended on; empty if it said nothing
	result  bytea,         -- null while the job runs, which no other transaction sees
	done    timestamptz NOT NULL DEFAULT clock_timestamp()
);
