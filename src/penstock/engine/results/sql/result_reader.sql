-- name: allow_scans
-- These statements read whole tables, unlike most others.
SELECT set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true),
       set_config('enable_hashjoin', 'on', true), set_config('statement_timeout', '60s', true)

-- name: find_views
SELECT q.result IS NOT NULL AS has_result, q.result ->> 'current' AS current_view,
       CASE WHEN coalesce((q.view -> 'is_shown')::boolean, true) THEN q.view END AS view
FROM penstock.queries q WHERE q.name = %(query)s

-- name: columns
SELECT a.attname::text AS name, format_type(a.atttypid, NULL) AS type
FROM pg_attribute a
WHERE a.attrelid = to_regclass(format('%%I.%%I', %(schema)s::text, %(view)s::text))
  AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: rows
SELECT row_to_json(v)::text FROM {view} v
WHERE {closed} AND (%(key)s::text IS NULL OR v.key = %(key)s)
  AND (%(since)s::timestamptz IS NULL OR v.window_end > %(since)s)
  AND (%(until)s::timestamptz IS NULL OR v.window_end <= %(until)s)
ORDER BY v.window_end, v.key, v.window_start
LIMIT %(limit)s

-- name: view_rows
SELECT row_to_json(v)::text FROM {view} v
WHERE {of_key}
ORDER BY {key}
LIMIT %(limit)s
