-- name: allow_scans
-- These statements read whole tables, unlike all others.
SELECT set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true),
       set_config('enable_hashjoin', 'on', true), set_config('statement_timeout', '20s', true)

-- name: position
SELECT q.result IS NOT NULL AS has_tables,
       to_regclass('penstock.state_' || q.id || '_key') IS NOT NULL AS has_sessions,
       q.result ->> 'current' AS current_view,
       coalesce(c.cycle, 0) AS cycle, c.committed_at
FROM penstock.queries q
LEFT JOIN LATERAL (
    SELECT c.cycle, c.committed_at FROM penstock.cycles c
    WHERE c.query_id = q.id AND c.committed_at IS NOT NULL ORDER BY c.cycle DESC LIMIT 1
) c ON true
WHERE q.id = %(query)s

-- name: commit
SELECT committed_at FROM penstock.cycles WHERE query_id = %(query)s AND cycle = %(cycle)s AND committed_at IS NOT NULL

-- name: snapshot
SELECT v.key, row_to_json(v)::text FROM penstock_live.{view} v
WHERE %(keys)s::text[] IS NULL OR v.key = ANY(%(keys)s)
ORDER BY v.window_end, v.key
LIMIT %(limit)s

-- name: changed
SELECT v.key, row_to_json(v)::text FROM penstock_live.{view} v
WHERE v.updated_at > %(since)s AND (%(keys)s::text[] IS NULL OR v.key = ANY(%(keys)s))
ORDER BY v.window_end, v.key
LIMIT %(limit)s

-- name: closed
SELECT v.key, row_to_json(v)::text FROM penstock_history.{view} v
WHERE NOT v.is_open AND v.updated_at > %(since)s AND (%(keys)s::text[] IS NULL OR v.key = ANY(%(keys)s))
ORDER BY v.window_end, v.key
LIMIT %(limit)s

-- name: changed_keys
SELECT nullif(s.key, '') AS key FROM penstock.state_{id} s WHERE s.updated_at > %(since)s
UNION
SELECT nullif(h.key, '') FROM penstock.history_{id} h WHERE h.closed_at > %(since)s

-- name: open_of_keys
SELECT v.key, row_to_json(v)::text FROM penstock_live.{view} v
WHERE coalesce(v.key, '') = ANY(%(keys)s::text[])
ORDER BY v.window_end, v.key
LIMIT %(limit)s

-- name: view_columns
-- Null before the first start of the view.
SELECT q.view FROM penstock.queries q WHERE q.id = %(query)s

-- name: view_rows
SELECT {key}, (SELECT row_to_json(v)::text FROM (SELECT {columns}, t.updated_at) v) FROM penstock.view_{id} t
WHERE %(keys)s::text[] IS NULL OR {key} = ANY(%(keys)s)
ORDER BY {order}
LIMIT %(limit)s
