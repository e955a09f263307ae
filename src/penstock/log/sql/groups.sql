-- name: group
SELECT id, queue_id, name, epoch, subscribed_from, query_id, created_at
FROM penstock.groups WHERE queue_id = %(queue)s AND name = %(name)s

-- name: create_group
INSERT INTO penstock.groups (queue_id, name, epoch, subscribed_from, query_id, seen_at)
SELECT %(queue)s, %(name)s,
       coalesce((SELECT min(p.epoch) FROM penstock.partitions p WHERE p.queue_id = %(queue)s), 0),
       %(subscribed_from)s, %(query)s, clock_timestamp() + %(skew)s
ON CONFLICT DO NOTHING
RETURNING id

-- name: create_cursors
INSERT INTO penstock.cursors (group_id, partition_id)
SELECT %(group)s, p.id FROM penstock.partitions p WHERE p.queue_id = %(queue)s

-- name: record_activity
UPDATE penstock.groups SET seen_at = clock_timestamp() + %(skew)s WHERE id = %(group)s

-- name: set_counts
UPDATE penstock.groups SET counts = %(counts)s WHERE queue_id = %(queue)s AND name = %(name)s RETURNING id

-- name: partition_bounds
-- Each partition with its first offset, the offset after its last, and the segment of the first event at a time or later.
SELECT p.id, p.name, p.epoch,
       coalesce((SELECT l.first_offset FROM penstock.segment_partitions l
                 WHERE l.partition_id = p.id ORDER BY l.end_offset LIMIT 1), p.sealed_end) AS start_offset,
       coalesce((SELECT c.end_offset FROM {chunks} c
                 WHERE c.partition_id = p.id ORDER BY c.end_offset DESC LIMIT 1), p.sealed_end) AS end_offset,
       (SELECT l.segment FROM penstock.segment_partitions l
        WHERE l.partition_id = p.id AND l.last_at >= %(time)s ORDER BY l.end_offset LIMIT 1) AS segment
FROM penstock.partitions p
WHERE p.queue_id = %(queue)s AND (%(name)s::text IS NULL OR p.name = %(name)s)
ORDER BY p.id

-- name: offsets_at
-- The first offset of each partition that was appended at a time or later, in one segment.
SELECT w.partition_id, k.end_offset - k.event_count
FROM unnest(%(partitions)s::bigint[]) AS w (partition_id)
CROSS JOIN LATERAL (
    SELECT c.end_offset, c.event_count FROM {chunks} c
    WHERE c.partition_id = w.partition_id AND c.appended_at >= %(time)s ORDER BY c.end_offset LIMIT 1
) k

-- name: lock_group
SELECT id, epoch FROM penstock.groups WHERE id = %(group)s FOR UPDATE

-- name: group_epoch
SELECT epoch FROM penstock.groups WHERE id = %(group)s

-- name: lock_group_cursors
SELECT partition_id FROM penstock.cursors WHERE group_id = %(group)s ORDER BY partition_id FOR NO KEY UPDATE

-- name: lock_positions
-- Locks the positions of the group and returns how many were locked, and how many there are. A position that moved while
-- the statement waited is not locked.
SELECT count(p.partition_id), count(*) FROM penstock.cursors c
LEFT JOIN LATERAL (
    SELECT p.partition_id FROM penstock.positions p
    WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id ORDER BY p.version DESC LIMIT 1
    FOR NO KEY UPDATE
) p ON true
WHERE c.group_id = %(group)s

-- name: move_positions
-- Ends leases and resets failed attempts.
WITH moved AS (
    INSERT INTO penstock.positions
        (group_id, partition_id, version, next_offset, lease_end, available_at, moved_at, redelivered_end)
    SELECT %(group)s, w.partition_id, coalesce(p.version, -1) + 1, w.next_offset, w.next_offset,
           'epoch', clock_timestamp() + %(skew)s, coalesce(greatest(p.redelivered_end, p.lease_end), 0)
    FROM unnest(%(partitions)s::bigint[], %(offsets)s::bigint[]) AS w (partition_id, next_offset)
    LEFT JOIN LATERAL penstock.current_position(%(group)s::integer, w.partition_id) p ON true
    RETURNING partition_id, version
)
DELETE FROM penstock.positions p USING moved m
CROSS JOIN LATERAL (
    SELECT o.ctid FROM penstock.positions o
    WHERE o.group_id = %(group)s AND o.partition_id = m.partition_id AND o.version < m.version
    ORDER BY o.version DESC LIMIT 1
) o
WHERE p.ctid = o.ctid

-- name: set_epoch
-- The group reads the partitions of this epoch and earlier ones. Cursors of later epochs are disabled.
WITH changed AS (
    UPDATE penstock.groups SET epoch = %(epoch)s WHERE id = %(group)s RETURNING id
)
UPDATE penstock.cursors c SET state = CASE WHEN p.epoch > %(epoch)s THEN 2 ELSE 0 END
FROM penstock.partitions p, changed
WHERE c.group_id = changed.id AND p.id = c.partition_id
  AND c.state <> CASE WHEN p.epoch > %(epoch)s THEN 2 ELSE 0 END

-- name: group_positions
-- The position of the group in each partition.
SELECT t.name, t.id, t.epoch, p.next_offset,
       coalesce((SELECT c.end_offset FROM {chunks} c
                 WHERE c.partition_id = t.id ORDER BY c.end_offset DESC LIMIT 1), t.sealed_end) AS end_offset,
       p.lease_id IS NOT NULL AND p.available_at > clock_timestamp() + %(skew)s, p.available_at, p.attempts, p.moved_at
FROM penstock.cursors c
JOIN penstock.partitions t ON t.id = c.partition_id
CROSS JOIN LATERAL penstock.current_position(c.group_id, c.partition_id) p
WHERE c.group_id = %(group)s
ORDER BY t.id

-- name: positions_behind
-- The positions of the group with the greatest lag. Parked cursors (state 1) have none and are skipped.
SELECT t.name, t.id, t.epoch, p.next_offset, h.end_offset,
       p.lease_id IS NOT NULL AND p.available_at > clock_timestamp() + %(skew)s, p.available_at, p.attempts, p.moved_at
FROM penstock.cursors c
JOIN penstock.partitions t ON t.id = c.partition_id
CROSS JOIN LATERAL penstock.current_position(c.group_id, c.partition_id) p
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT k.end_offset FROM {chunks} k
                     WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end) AS end_offset
) h
WHERE c.group_id = %(group)s AND c.state <> 1 AND h.end_offset > p.next_offset
ORDER BY h.end_offset - p.next_offset DESC, t.id
LIMIT %(limit)s

-- name: groups_of_query
SELECT id, queue_id, name FROM penstock.groups WHERE query_id = %(query)s ORDER BY id

-- name: delete_group_positions
DELETE FROM penstock.positions WHERE group_id = %(group)s

-- name: delete_group
DELETE FROM penstock.groups WHERE id = %(group)s

-- name: has_unread
-- Whether the group has unread events in its epoch or earlier ones.
SELECT EXISTS (
    SELECT FROM penstock.cursors c
    JOIN penstock.partitions t ON t.id = c.partition_id AND t.epoch <= %(epoch)s
    CROSS JOIN LATERAL penstock.current_position(c.group_id, c.partition_id) p
    WHERE c.group_id = %(group)s
      AND p.next_offset < coalesce(
          (SELECT k.end_offset FROM {chunks} k
           WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end)
)
