-- name: columns
-- resolution_seconds is set for times: how long rows can get the same value. For a date, a day and all time zones.
SELECT a.attname AS name,
       coalesce(a.attnum = ANY (c.conkey), false) AS is_primary_key,
       EXISTS (SELECT FROM pg_index i
               WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
                 AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum) AS is_unique,
       CASE WHEN k.kind = 'date'::regtype THEN 180000.0
            WHEN k.kind IN ('timestamptz'::regtype, 'timestamp'::regtype)
            THEN CASE WHEN k.digits BETWEEN 0 AND 5 THEN power(10.0, -k.digits) ELSE 0.0 END
       END::float8 AS resolution_seconds
FROM pg_attribute a
JOIN pg_type y ON y.oid = a.atttypid
CROSS JOIN LATERAL (
    SELECT coalesce(nullif(y.typbasetype, 0), y.oid) AS kind,
           CASE WHEN y.typbasetype = 0 THEN a.atttypmod ELSE y.typtypmod END AS digits
) AS k
LEFT JOIN pg_constraint c ON c.conrelid = a.attrelid AND c.contype = 'p'
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: is_standby
SELECT pg_is_in_recovery()

-- name: last
-- The key of the last row.
SELECT {key} FROM {table} t
WHERE {column} IS NOT NULL AND {after_position} AND {is_old_enough}
ORDER BY {descending}
LIMIT 1

-- name: writers
-- The transactions that may write to the table or to a partition of it. A transaction has this lock before it takes a
-- value for a column, which is before it has an id that a snapshot knows, and until its rows are visible. A prepared
-- transaction keeps the lock and its id.
WITH RECURSIVE parts AS (
    SELECT to_regclass(%(table)s)::oid AS id
    UNION
    SELECT i.inhrelid FROM pg_inherits i JOIN parts p ON i.inhparent = p.id
)
SELECT DISTINCT l.virtualtransaction FROM pg_locks l
WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND l.relation IN (SELECT p.id FROM parts p)

-- name: rows
SELECT {key}, to_jsonb(t)::text
FROM {table} t
WHERE {column} IS NOT NULL AND {after_position} AND ({order}) <= ({bound})
ORDER BY {order}
LIMIT %(limit)s

-- name: is_old_enough
{column} < clock_timestamp() - make_interval(secs => %(behind)s)
