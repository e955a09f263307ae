-- name: positions
-- The position of a group in each partition. oldest_at is when the first unread event was appended. For a sealed segment
-- only the append time of its last event is known, so the lag is never overstated.
SELECT t.name AS partition, t.id AS partition_id, p.next_offset, h.end_offset,
       p.lease_id IS NOT NULL AND p.available_at > clock_timestamp() AS is_leased, p.lease_id, p.moved_at,
       CASE WHEN h.end_offset > p.next_offset THEN coalesce(
           (SELECT l.last_at FROM penstock.segment_lanes l
            WHERE l.partition_id = t.id AND l.end_offset > p.next_offset ORDER BY l.end_offset LIMIT 1),
           (SELECT k.appended_at FROM {chunks} k
            WHERE k.partition_id = t.id AND k.end_offset > p.next_offset ORDER BY k.end_offset LIMIT 1))
       END AS oldest_at,
       clock_timestamp() AS now
FROM penstock.cursors c
JOIN penstock.groups g ON g.id = c.group_id
JOIN penstock.partitions t ON t.id = c.partition_id
CROSS JOIN LATERAL (
    SELECT * FROM penstock.positions p
    WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id ORDER BY p.version DESC LIMIT 1
) p
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT k.end_offset FROM {chunks} k
                     WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end) AS end_offset
) h
WHERE g.queue_id = %(queue)s AND g.name = %(group)s
ORDER BY t.name
