-- name: partitions
-- Each partition with the first offset that is still there and the one after the last, the fullest first.
SELECT p.id, p.name, p.epoch, b.first_offset, b.end_offset
FROM penstock.partitions p
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT l.first_offset FROM penstock.segment_lanes l
                     WHERE l.partition_id = p.id ORDER BY l.end_offset LIMIT 1), p.sealed_end) AS first_offset,
           coalesce((SELECT c.end_offset FROM {chunks} c
                     WHERE c.partition_id = p.id ORDER BY c.end_offset DESC LIMIT 1), p.sealed_end) AS end_offset
) b
WHERE p.queue_id = %(queue)s
ORDER BY b.end_offset - b.first_offset DESC, p.id
LIMIT %(limit)s
