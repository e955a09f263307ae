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
-- The tokens of a new bucket are its capacity without the cost of the release. Those of a stored one are first refilled.
INSERT INTO penstock.client_query_state AS s
    (query_id, partition_id, state_key, value, key, window_start, window_end, updated_at, bucket_capacity, bucket_rate,
     bucket_min_rate, bucket_tokens)
SELECT %(query)s, %(partition)s, n.state_key, n.value::jsonb, n.key, n.window_start, n.window_end, clock_timestamp(),
       n.capacity, n.rate, n.min_rate, n.capacity - n.cost
FROM unnest(%(state_keys)s::text[], %(values)s::text[], %(keys)s::text[], %(starts)s::timestamptz[],
            %(ends)s::timestamptz[], %(capacities)s::float8[], %(rates)s::float8[], %(min_rates)s::float8[], %(costs)s::float8[])
    AS n (state_key, value, key, window_start, window_end, capacity, rate, min_rate, cost)
ORDER BY n.state_key
ON CONFLICT (query_id, partition_id, state_key) DO UPDATE SET
    value = excluded.value, key = excluded.key, window_start = excluded.window_start,
    window_end = excluded.window_end, updated_at = excluded.updated_at,
    bucket_capacity = excluded.bucket_capacity, bucket_rate = excluded.bucket_rate,
    bucket_min_rate = excluded.bucket_min_rate,
    bucket_tokens = excluded.bucket_tokens - excluded.bucket_capacity + least(
        excluded.bucket_capacity,
        s.bucket_tokens + excluded.bucket_capacity - s.bucket_capacity
            + coalesce(excluded.bucket_rate, excluded.bucket_min_rate, 0)
              * extract(epoch FROM excluded.updated_at - s.updated_at)::float8)

-- name: delete
DELETE FROM penstock.client_query_state
WHERE query_id = %(query)s AND partition_id = %(partition)s AND state_key = ANY(%(keys)s)
RETURNING state_key
