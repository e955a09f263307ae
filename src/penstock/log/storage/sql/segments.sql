-- name: lock_partitions
-- After the lock on the queue, in the order of the ids. No push is running while a segment is sealed.
SELECT id FROM penstock.partitions WHERE queue_id = %(queue)s ORDER BY id FOR NO KEY UPDATE

-- name: store_bounds
-- Stores the bounds of each partition in the segment. It reads only both ends of each partition's index.
INSERT INTO penstock.segment_partitions (queue_id, segment, partition_id, first_offset, end_offset, last_at)
SELECT %(queue)s, %(segment)s, p.id, f.first_offset, l.end_offset, l.appended_at
FROM penstock.partitions p
CROSS JOIN LATERAL (
    SELECT c.end_offset - c.event_count AS first_offset FROM {chunks} c
    WHERE c.partition_id = p.id ORDER BY c.end_offset LIMIT 1
) f
CROSS JOIN LATERAL (
    SELECT c.end_offset, c.appended_at FROM {chunks} c
    WHERE c.partition_id = p.id ORDER BY c.end_offset DESC LIMIT 1
) l
WHERE p.queue_id = %(queue)s

-- name: seal_partitions
UPDATE penstock.partitions p SET sealed_end = l.end_offset, sealed_at = l.last_at
FROM penstock.segment_partitions l
WHERE l.queue_id = %(queue)s AND l.segment = %(segment)s AND p.id = l.partition_id

-- name: seal_segment
UPDATE penstock.segments SET sealed_at = clock_timestamp() + %(skew)s WHERE queue_id = %(queue)s AND segment = %(segment)s

-- name: open_segment
UPDATE penstock.queues SET segment = %(segment)s WHERE id = %(queue)s

-- name: start_epoch
UPDATE penstock.queues SET epoch = %(epoch)s, partitioning = %(partitioning)s, partition_count = %(partition_count)s,
    partitions_warned_at = NULL
WHERE id = %(queue)s

-- name: segment_state
-- The age and the size of the open segment, and whether it has any chunks.
SELECT clock_timestamp() + %(skew)s - s.created_at, pg_table_size('{chunks}'),
       EXISTS (SELECT FROM {chunks})
FROM penstock.segments s WHERE s.queue_id = %(queue)s AND s.segment = %(segment)s
