-- name: list
-- The group's seen_at is updated once a minute, so a query counts as read for two minutes.
SELECT q.name, q.source_queue AS queue, q.sink_queue AS sink, q.group_name AS "group", q.created_at,
       coalesce(g.seen_at > clock_timestamp() + %(skew)s - interval '2 minutes', false) AS is_read,
       m.moved_at AS committed_at
FROM penstock.client_queries q
LEFT JOIN penstock.queues k ON k.name = q.source_queue
LEFT JOIN penstock.groups g ON g.queue_id = k.id AND g.name = q.group_name
LEFT JOIN LATERAL (
    SELECT max(p.moved_at) AS moved_at FROM penstock.cursors c
    CROSS JOIN LATERAL penstock.current_position(c.group_id, c.partition_id) p
    WHERE c.group_id = g.id
) m ON true
WHERE %(name)s::text IS NULL OR q.name = %(name)s
ORDER BY q.name

-- name: count_open_rows
-- Rows without a key are bookkeeping of the clients.
SELECT count(*) FROM penstock.client_query_state s JOIN penstock.client_queries q ON q.id = s.query_id
WHERE q.name = %(name)s AND s.key IS NOT NULL

-- name: delete
DELETE FROM penstock.client_queries WHERE name = %(name)s RETURNING id
