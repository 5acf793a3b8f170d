-- Returns the holder of the advisory lock of a name: the server process and a note. $1 and $2: the
-- name, or its integer.
SELECT coalesce(max(holder.pid), 0) AS pid, coalesce(max(holder.note), '') AS note
  FROM (
       SELECT l.pid,
              CASE WHEN l.pid IS NULL THEN 'a prepared transaction'
                   ELSE concat_ws(' at ', nullif(a.application_name, ''), host(a.client_addr))
               END AS note
         FROM pg_lock_status() AS l
         LEFT JOIN LATERAL pg_stat_get_activity(l.pid) AS a ON l.pid IS NOT NULL
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND (l.classid::bigint << 32) | l.objid::bigint = coalesce($2::bigint, pg_catalog.hashtextextended($1::text, 0::bigint))
          AND l.pid IS DISTINCT FROM pg_backend_pid()
        ORDER BY l.pid
        LIMIT 1
       ) AS holder
