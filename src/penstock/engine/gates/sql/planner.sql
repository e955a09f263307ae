-- name: unread_partitions
-- The partitions with unread events, how many events of each to buffer, and the last cycle whose events were evicted.
SELECT {queue}::bigint, c.group_id, {segment}::bigint, c.partition_id, t.name, t.is_lane, t.sealed_end, p.next_offset,
       h.end_offset, NULL, NULL, l.wants, coalesce(l.put_back, 0)
FROM penstock.cursors c
JOIN penstock.partitions t ON t.id = c.partition_id
CROSS JOIN LATERAL (
    SELECT p.next_offset FROM penstock.positions p
    WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id ORDER BY p.version DESC LIMIT 1
) p
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT k.end_offset FROM {chunks} k
                     WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end) AS end_offset
) h
LEFT JOIN penstock.gate_lanes l ON l.query_id = %(query)s AND l.partition_id = c.partition_id
WHERE c.group_id = %(group)s AND c.state = 0 AND h.end_offset > p.next_offset
ORDER BY c.partition_id

-- name: due_partitions
-- The parked partitions that are due. statement_timestamp() is constant within the statement, so the index is used.
SELECT partition_id FROM penstock.gate_lanes
WHERE query_id = %(query)s AND wakes_at <= statement_timestamp() ORDER BY wakes_at LIMIT 10000

-- name: clear_wake_times
UPDATE penstock.gate_lanes SET wakes_at = NULL
WHERE query_id = %(query)s AND partition_id = ANY(%(partitions)s::bigint[])

-- name: positions
-- The group's positions in these partitions, and the last cycle whose events were evicted.
SELECT w.partition_id, p.next_offset, coalesce(l.put_back, 0)
FROM unnest(%(partitions)s::bigint[]) AS w (partition_id)
CROSS JOIN LATERAL (
    SELECT p.next_offset FROM penstock.positions p
    WHERE p.group_id = %(group)s AND p.partition_id = w.partition_id ORDER BY p.version DESC LIMIT 1
) p
LEFT JOIN penstock.gate_lanes l ON l.query_id = %(query)s AND l.partition_id = w.partition_id

-- name: lock_query
SELECT id FROM penstock.queries WHERE id = %(query)s AND fence = %(fence)s FOR UPDATE
