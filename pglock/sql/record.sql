-- Records: values that change only from the version that was read. The table has no
-- version of its own: whoever needs it and does not find it runs the schema again. It is
-- its owner's alone, like the epoch: records say what was done and paid, and hold answers
-- that are for one client.
DO $$
BEGIN
	IF to_regclass('fencelock.record') IS NULL THEN
		CREATE TABLE fencelock.record (
			key     text PRIMARY KEY,
			version text NOT NULL,
			value   bytea NOT NULL,
			expires timestamptz -- null if never
		);
		CREATE INDEX record_expires ON fencelock.record (expires) WHERE expires IS NOT NULL;
	END IF;
END $$;
