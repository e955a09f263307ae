-- name: wanted
-- How many events of each partition to buffer, where that is known.
SELECT partition_id, wants FROM penstock.gate_keys
WHERE query_id = %(query)s AND partition_id = ANY(%(partitions)s::bigint[])

-- name: due_partitions
-- The parked partitions that are due. statement_timestamp() is constant within the statement, so the index is used.
SELECT partition_id FROM penstock.gate_keys
WHERE query_id = %(query)s AND wakes_at <= statement_timestamp() ORDER BY wakes_at LIMIT 10000

-- name: clear_wake_times
UPDATE penstock.gate_keys SET wakes_at = NULL
WHERE query_id = %(query)s AND partition_id = ANY(%(partitions)s::bigint[])

-- name: lock_query
SELECT id FROM penstock.queries WHERE id = %(query)s AND fence = %(fence)s FOR UPDATE
