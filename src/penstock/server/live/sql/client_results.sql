-- name: version
-- Values that differ after any change of the state. Many workers write and delete rows, and a row that is committed late
-- may have been written early, so the newest time alone is not enough.
SELECT count(s.updated_at) AS rows, sum(extract(epoch FROM s.updated_at)) AS checksum, max(s.updated_at) AS updated_at
FROM penstock.client_queries q LEFT JOIN penstock.client_query_state s ON s.query_id = q.id
WHERE q.id = %(query)s
GROUP BY q.id

-- name: row_versions
SELECT s.partition_id, s.state_key, penstock.micros(s.updated_at) FROM penstock.client_query_state s
WHERE s.query_id = %(query)s AND s.key IS NOT NULL AND (%(keys)s::text[] IS NULL OR s.key = ANY(%(keys)s))
LIMIT %(limit)s

-- name: rows
-- Rows as in the view penstock.state, with the partition: two partitions may have windows of the same key.
SELECT s.partition_id, s.state_key, s.key, row_to_json(v)::text
FROM unnest(%(partitions)s::bigint[], %(state_keys)s::text[]) AS w (partition_id, state_key)
JOIN penstock.client_query_state s
    ON s.query_id = %(query)s AND s.partition_id = w.partition_id AND s.state_key = w.state_key
JOIN penstock.partitions p ON p.id = s.partition_id
CROSS JOIN LATERAL (
    SELECT s.key, p.name AS partition, s.window_start, s.window_end,
           CASE WHEN s.window_start IS NOT NULL AND s.value ? 'acc' THEN s.value -> 'acc' ELSE s.value END AS value,
           s.updated_at, true AS is_open
) v
