-- name: readers
SELECT g.name AS "group", p.next_offset, p.skipped, p.lease_end, p.available_at,
       p.lease_id IS NOT NULL AND p.available_at > clock_timestamp() AS is_leased
FROM penstock.cursors c
JOIN penstock.groups g ON g.id = c.group_id
CROSS JOIN LATERAL penstock.current_position(c.group_id, c.partition_id) p
WHERE c.partition_id = %(partition)s
ORDER BY g.name

-- name: dead_letters
SELECT d.id, d.group_name, d.error, d.attempts FROM penstock.dead_letters d
WHERE d.queue_id = %(queue)s AND d.partition_id = %(partition)s AND d.event_offset = %(offset)s
  AND d.redriven_at IS NULL
ORDER BY d.id

-- name: dead_offsets
SELECT DISTINCT d.event_offset FROM penstock.dead_letters d
WHERE d.queue_id = %(queue)s AND d.partition_id = %(partition)s AND d.event_offset = ANY(%(offsets)s)
  AND d.redriven_at IS NULL
