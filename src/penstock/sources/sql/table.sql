-- name: columns
SELECT a.attname, coalesce(a.attnum = ANY (k.conkey), false)
FROM pg_attribute a
LEFT JOIN pg_constraint k ON k.conrelid = a.attrelid AND k.contype = 'p'
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: first
SELECT {after}, {settled}, to_jsonb(t)::text
FROM {table} t
WHERE {column} IS NOT NULL
ORDER BY {order}
LIMIT %(most)s

-- name: next
SELECT {after}, {settled}, to_jsonb(t)::text
FROM {table} t
WHERE ({order}) > ({values})
ORDER BY {order}
LIMIT %(most)s

-- name: settled
-- Written by a transaction that began before any that still runs: nobody can commit a row before it any more.
age(t.xmin) > age(pg_snapshot_xmin(pg_current_snapshot())::xid)

-- name: behind
{column} < clock_timestamp() - make_interval(secs => %(behind)s)
