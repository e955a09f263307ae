-- name: read
SELECT s.state_key, s.value::text AS value, s.updated_at FROM penstock.client_query_state s
WHERE s.query_id = %(query)s AND s.partition_id = %(partition)s
  AND (cardinality(%(keys)s::text[]) = 0 OR s.state_key = ANY(%(keys)s::text[]))
  AND (%(prefix)s::text IS NULL OR starts_with(s.state_key, %(prefix)s))
  AND (%(ripe)s::numeric IS NULL OR CASE WHEN jsonb_typeof(s.value -> 'windowEnd') = 'number'
                                         THEN (s.value ->> 'windowEnd')::numeric <= %(ripe)s::numeric END
           AND s.updated_at <= clock_timestamp() - make_interval(secs => %(seconds)s))
ORDER BY s.state_key

-- name: find_recent
-- Rows that another worker wrote too recently for this writer to have read them.
SELECT state_key FROM penstock.client_query_state
WHERE query_id = %(query)s AND partition_id = %(partition)s AND state_key = ANY(%(keys)s)
  AND updated_at > clock_timestamp() - make_interval(secs => %(seconds)s)

-- name: upsert
INSERT INTO penstock.client_query_state
    (query_id, partition_id, state_key, value, key, window_start, window_end, updated_at)
SELECT %(query)s, %(partition)s, n.state_key, n.value::jsonb, n.key, n.window_start, n.window_end, clock_timestamp()
FROM unnest(%(state_keys)s::text[], %(values)s::text[], %(keys)s::text[], %(starts)s::timestamptz[], %(ends)s::timestamptz[])
    AS n (state_key, value, key, window_start, window_end)
ORDER BY n.state_key
ON CONFLICT (query_id, partition_id, state_key) DO UPDATE SET
    value = excluded.value, key = excluded.key, window_start = excluded.window_start,
    window_end = excluded.window_end, updated_at = excluded.updated_at

-- name: delete
DELETE FROM penstock.client_query_state
WHERE query_id = %(query)s AND partition_id = %(partition)s AND state_key = ANY(%(keys)s)
RETURNING state_key
