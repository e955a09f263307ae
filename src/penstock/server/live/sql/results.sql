-- name: query
-- A name is of a query on Spark, or of one that clients compute for themselves.
SELECT id, false FROM penstock.queries WHERE name = %(name)s
UNION ALL
SELECT id, true FROM penstock.shared_queries WHERE name = %(name)s

-- name: look_closely
-- Whole tables are looked through here, unlike everywhere else; and what is read is of one moment.
SELECT set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true),
       set_config('enable_hashjoin', 'on', true), set_config('statement_timeout', '20s', true)

-- name: head
-- Whether the query is there, has its tables, and keeps sessions, whose windows move; and its last cycle.
SELECT q.result IS NOT NULL, to_regclass('penstock.state_' || q.id || '_key') IS NOT NULL, c.cycle, c.committed_at
FROM penstock.queries q
LEFT JOIN LATERAL (
    SELECT c.cycle, c.committed_at FROM penstock.cycles c
    WHERE c.query_id = q.id AND c.committed_at IS NOT NULL ORDER BY c.cycle DESC LIMIT 1
) c ON true
WHERE q.id = %(query)s

-- name: cycle
SELECT committed_at FROM penstock.cycles WHERE query_id = %(query)s AND cycle = %(cycle)s AND committed_at IS NOT NULL

-- name: snapshot
SELECT v.key, row_to_json(v)::text FROM penstock_live.{view} v
WHERE %(keys)s::text[] IS NULL OR v.key = ANY(%(keys)s)
ORDER BY v.window_end, v.key LIMIT %(most)s

-- name: changed
SELECT v.key, row_to_json(v)::text FROM penstock_live.{view} v
WHERE v.updated_at > %(since)s AND (%(keys)s::text[] IS NULL OR v.key = ANY(%(keys)s))
ORDER BY v.window_end, v.key LIMIT %(most)s

-- name: closed
SELECT v.key, row_to_json(v)::text FROM penstock_history.{view} v
WHERE NOT v.is_open AND v.updated_at > %(since)s AND (%(keys)s::text[] IS NULL OR v.key = ANY(%(keys)s))
ORDER BY v.window_end, v.key LIMIT %(most)s

-- name: touched
-- The keys of which something has changed.
SELECT nullif(s.key, '') FROM penstock.state_{id} s WHERE s.updated_at > %(since)s
UNION
SELECT nullif(h.key, '') FROM penstock.history_{id} h WHERE h.closed_at > %(since)s

-- name: open_of
SELECT v.key, row_to_json(v)::text FROM penstock_live.{view} v
WHERE coalesce(v.key, '') = ANY(%(keys)s::text[])
ORDER BY v.window_end, v.key LIMIT %(most)s

-- name: shared_mark
-- Whether the query is there, and what is another after any change of its state: rows are written and deleted by many,
-- and a row that is committed late may have been written early.
SELECT count(s.updated_at), sum(extract(epoch FROM s.updated_at)), max(s.updated_at)
FROM penstock.shared_queries q LEFT JOIN penstock.shared_state s ON s.query_id = q.id
WHERE q.id = %(query)s
GROUP BY q.id

-- name: shared_versions
-- Each row that people may see, and when it was written.
SELECT s.partition_id, s.state_key, penstock.micros(s.updated_at) FROM penstock.shared_state s
WHERE s.query_id = %(query)s AND s.key IS NOT NULL AND (%(keys)s::text[] IS NULL OR s.key = ANY(%(keys)s))
LIMIT %(most)s

-- name: shared_rows
-- Some of them, as they stand in penstock.state, with the partition: two may have windows of one key.
SELECT s.partition_id, s.state_key, s.key, row_to_json(v)::text
FROM unnest(%(partitions)s::bigint[], %(state_keys)s::text[]) AS w (partition_id, state_key)
JOIN penstock.shared_state s
    ON s.query_id = %(query)s AND s.partition_id = w.partition_id AND s.state_key = w.state_key
JOIN penstock.partitions p ON p.id = s.partition_id
CROSS JOIN LATERAL (
    SELECT s.key, p.name AS partition, s.window_start, s.window_end,
           CASE WHEN s.window_start IS NOT NULL AND s.value ? 'acc' THEN s.value -> 'acc' ELSE s.value END AS value,
           s.updated_at, true AS is_open
) v
