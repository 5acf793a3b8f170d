-- Takes the advisory lock of a name for the transaction if it is free, and says who
-- is in the way if it is not.
-- $1, $2: the name, or its integer; $3: shared; $4: any isolation level will do.
WITH setting AS MATERIALIZED (
    SELECT coalesce($2::bigint, hashtextextended($1::text, 0)) AS key,
           current_setting('transaction_isolation') AS isolation,
           pg_is_in_recovery() AS standby,
           (extract(epoch FROM current_setting('lock_timeout')::interval) * 1000)::bigint AS lock_timeout
), attempt AS MATERIALIZED (
    SELECT *, CASE
               WHEN standby OR NOT ($4::boolean OR isolation IN ('read committed', 'read uncommitted')) THEN false
               WHEN $3::boolean THEN pg_try_advisory_xact_lock_shared(key)
               ELSE pg_try_advisory_xact_lock(key)
           END AS got
      FROM setting
)
SELECT attempt.got, attempt.isolation, attempt.standby, attempt.lock_timeout,
       coalesce(holder.pid, 0) AS pid, coalesce(holder.note, '') AS note
  FROM attempt
  LEFT JOIN LATERAL (
       SELECT l.pid,
              CASE WHEN l.pid IS NULL THEN 'a prepared transaction'
                   ELSE concat_ws(' at ', nullif(a.application_name, ''), host(a.client_addr))
               END AS note
         FROM pg_lock_status() AS l
         LEFT JOIN LATERAL pg_stat_get_activity(l.pid) AS a ON l.pid IS NOT NULL
        WHERE NOT attempt.got
          AND l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND (l.classid::bigint << 32) | l.objid::bigint = attempt.key
          AND l.pid IS DISTINCT FROM pg_backend_pid()
        ORDER BY l.pid
        LIMIT 1
       ) AS holder ON true
