-- Takes the advisory lock of a name for the transaction if it is free. Otherwise it does not return
-- the holder, because the server would have to list all of its locks. $1 and $2: the name, or its
-- integer; $3: shared; $4: accept any isolation level.
WITH setting AS MATERIALIZED (
    SELECT coalesce($2::bigint, pg_catalog.hashtextextended($1::text, 0::bigint)) AS key,
           current_setting('transaction_isolation') AS isolation,
           pg_is_in_recovery() AS standby,
           (extract(epoch FROM current_setting('lock_timeout')::interval) * 1000)::bigint AS lock_timeout
)
SELECT CASE
           WHEN standby OR NOT ($4::boolean OR isolation IN ('read committed', 'read uncommitted')) THEN false
           WHEN $3::boolean THEN pg_catalog.pg_try_advisory_xact_lock_shared(key)
           ELSE pg_catalog.pg_try_advisory_xact_lock(key)
       END AS got, isolation, standby, lock_timeout
  FROM setting
