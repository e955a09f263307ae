-- The open windows of one query, as its view has them. The top rows are asked for, however many there are.

-- name: queries
-- Those that have windows.
SELECT id, name, description FROM penstock.queries WHERE result IS NOT NULL ORDER BY name LIMIT 500

-- name: columns
-- The columns of a query's view, beside those that every view has.
SELECT a.attname, format_type(a.atttypid, NULL)
FROM pg_attribute a
WHERE a.attrelid = %(view)s::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: look_closely
SELECT set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true),
       set_config('enable_hashjoin', 'on', true), set_config('statement_timeout', '3s', true)

-- name: totals
-- How many rows there are and how many match; of each column the sum and the largest, {sums} being these.
SELECT count(*), count(DISTINCT v.key), count(*) FILTER (WHERE {matches}), max(v.updated_at){sums}
FROM {shown} v

-- name: rows
SELECT v.key, v.window_start, v.window_end, v.updated_at{values}
FROM {shown} v
WHERE {matches}
ORDER BY {order} NULLS LAST, v.window_end DESC, v.key LIMIT %(limit)s OFFSET %(offset)s

-- name: one_a_key
-- Of each key the window that is fullest of now: of those that have not ended the one that ends first, else the latest.
SELECT DISTINCT ON (w.key) w.* FROM penstock_live.{view} w
ORDER BY w.key, CASE WHEN w.window_end > clock_timestamp() THEN w.window_end END, w.window_end DESC

-- name: courses
-- The last closed windows of some keys, the oldest first: one that still fills would look like a fall.
SELECT h.key, array_agg(h.value ORDER BY h.window_end)
FROM (
    SELECT v.key, v.window_end, v.{column}::float8 AS value
    FROM penstock_history.{view} v
    WHERE NOT v.is_open AND v.window_end > %(since)s AND coalesce(v.key, '') = ANY(%(keys)s::text[])
) h
GROUP BY h.key
