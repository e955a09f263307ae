-- The open windows of one query, read from its view.

-- name: queries
-- All queries that have windows.
SELECT id, name, description, result ->> 'current' FROM penstock.queries WHERE result IS NOT NULL ORDER BY name LIMIT 500

-- name: columns
SELECT a.attname AS name, format_type(a.atttypid, NULL) AS type
FROM pg_attribute a
WHERE a.attrelid = %(view)s::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: configure_planner
SELECT set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true),
       set_config('enable_hashjoin', 'on', true), set_config('statement_timeout', '3s', true)

-- name: totals
-- The number of rows, keys and matching rows; {aggregates} are the sum and the maximum of each numeric column.
SELECT count(*) AS windows, count(DISTINCT v.key) AS keys, count(*) FILTER (WHERE {matches}) AS matching,
       max(v.updated_at) AS updated_at{aggregates}
FROM {source} v

-- name: rows
SELECT v.key, v.window_start, v.window_end, v.updated_at{values}
FROM {source} v
WHERE {matches}
ORDER BY {order} NULLS LAST, v.window_end DESC, v.key LIMIT %(limit)s OFFSET %(offset)s

-- name: current_windows
-- The current window of each key, for a query without a view of them because an earlier version started it: among those
-- that have not ended the one that ends first, else the latest.
SELECT DISTINCT ON (w.key) w.* FROM penstock_live.{view} w
ORDER BY w.key, CASE WHEN w.window_end > clock_timestamp() THEN w.window_end END, w.window_end DESC

-- name: history
-- The last closed windows of some keys, oldest first. An open window is left out: its value is not complete.
SELECT h.key, array_agg(h.value ORDER BY h.window_end)
FROM (
    SELECT v.key, v.window_end, v.{column}::float8 AS value
    FROM penstock_history.{view} v
    WHERE NOT v.is_open AND v.window_end > %(since)s AND coalesce(v.key, '') = ANY(%(keys)s::text[])
) h
GROUP BY h.key
