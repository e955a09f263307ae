-- name: queue
SELECT id, segment FROM penstock.queues WHERE name = %(name)s

-- name: partitions
-- Each partition with its first offset and the offset after its last one, in the order of their creation.
SELECT p.id, p.name, p.is_key_partition, p.epoch, p.sealed_end,
       coalesce((SELECT l.first_offset FROM penstock.segment_partitions l
                 WHERE l.partition_id = p.id ORDER BY l.end_offset LIMIT 1), p.sealed_end) AS first_offset,
       coalesce((SELECT c.end_offset FROM {chunks} c
                 WHERE c.partition_id = p.id ORDER BY c.end_offset DESC LIMIT 1), p.sealed_end) AS end_offset
FROM penstock.partitions p
WHERE p.queue_id = %(queue)s
ORDER BY p.epoch, p.id

-- name: segments_at
-- The sealed segment of each partition that holds the first event at a time or later.
SELECT p.id, l.segment
FROM penstock.partitions p
CROSS JOIN LATERAL (
    SELECT l.segment FROM penstock.segment_partitions l
    WHERE l.partition_id = p.id AND l.last_at >= %(time)s ORDER BY l.end_offset LIMIT 1
) l
WHERE p.queue_id = %(queue)s

-- name: group
SELECT id FROM penstock.groups WHERE queue_id = %(queue)s AND name = %(name)s
