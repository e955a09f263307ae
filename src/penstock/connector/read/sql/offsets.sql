-- name: queue
SELECT id, segment FROM penstock.queues WHERE name = %(name)s

-- name: heads
-- Each partition with the first offset that is still there and the one after the last, in the order in which they came.
SELECT p.id, p.name, p.is_lane, p.epoch, p.sealed_end,
       coalesce((SELECT l.first_offset FROM penstock.segment_lanes l
                 WHERE l.partition_id = p.id ORDER BY l.end_offset LIMIT 1), p.sealed_end) AS first_offset,
       coalesce((SELECT c.end_offset FROM {chunks} c
                 WHERE c.partition_id = p.id ORDER BY c.end_offset DESC LIMIT 1), p.sealed_end) AS end_offset
FROM penstock.partitions p
WHERE p.queue_id = %(queue)s
ORDER BY p.epoch, p.id

-- name: segments_at
-- Of partitions whose last sealed event is of a time or later, the segment that holds the first such event.
SELECT p.id, l.segment
FROM penstock.partitions p
CROSS JOIN LATERAL (
    SELECT l.segment FROM penstock.segment_lanes l
    WHERE l.partition_id = p.id AND l.last_at >= %(time)s ORDER BY l.end_offset LIMIT 1
) l
WHERE p.queue_id = %(queue)s

-- name: group
SELECT id, query_id FROM penstock.groups WHERE queue_id = %(queue)s AND name = %(name)s
