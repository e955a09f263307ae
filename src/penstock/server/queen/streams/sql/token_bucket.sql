-- name: read
SELECT s.state_key, s.value::text AS value, s.bucket_capacity AS capacity, s.bucket_rate AS rate,
       s.bucket_min_rate AS min_rate, s.bucket_tokens AS tokens, extract(epoch FROM clock_timestamp() - s.updated_at)::float8 AS seconds
FROM penstock.client_query_state s
WHERE s.query_id = %(query)s AND s.partition_id = %(partition)s AND s.state_key = ANY(%(keys)s)
