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

-- name: expired_segments
-- Sealed segments that are older than the retention, oldest first, and whether a group has not read them.
SELECT s.segment,
       EXISTS (
           SELECT FROM penstock.segment_partitions l
           JOIN penstock.cursors c ON c.partition_id = l.partition_id
           CROSS JOIN LATERAL penstock.current_position(c.group_id, c.partition_id) p
           WHERE l.queue_id = s.queue_id AND l.segment = s.segment AND p.next_offset < l.end_offset
       ) AS unread
FROM penstock.segments s
WHERE s.queue_id = %(queue)s AND s.sealed_at < clock_timestamp() + %(skew)s - make_interval(secs => least(%(seconds)s, 1e10))
ORDER BY s.segment

-- name: lock_positions_behind
-- Locks the positions of all groups in the segment's partitions, and returns how many were locked and how many there
-- are. A position that moved while the statement waited is not locked.
SELECT count(p.partition_id), count(*) FROM penstock.segment_partitions l
JOIN penstock.cursors c ON c.partition_id = l.partition_id
LEFT JOIN LATERAL (
    SELECT p.partition_id FROM penstock.positions p
    WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id ORDER BY p.version DESC LIMIT 1
    FOR NO KEY UPDATE
) p ON true
WHERE l.queue_id = %(queue)s AND l.segment = %(segment)s

-- name: skip_dropped
-- Moves groups past the dropped events that they have not read, and counts these for each group.
WITH behind AS MATERIALIZED (
    SELECT c.group_id, l.partition_id, l.end_offset, p.version, l.end_offset - p.next_offset AS unread,
           greatest(p.redelivered_end, p.lease_end) AS redelivered_end
    FROM penstock.segment_partitions l
    JOIN penstock.cursors c ON c.partition_id = l.partition_id
    CROSS JOIN LATERAL penstock.current_position(c.group_id, c.partition_id) p
    WHERE l.queue_id = %(queue)s AND l.segment = %(segment)s AND p.next_offset < l.end_offset
),
moved AS (
    INSERT INTO penstock.positions
        (group_id, partition_id, version, next_offset, lease_end, available_at, moved_at, redelivered_end)
    SELECT group_id, partition_id, version + 1, end_offset, end_offset, 'epoch', clock_timestamp() + %(skew)s,
           redelivered_end
    FROM behind
    ON CONFLICT DO NOTHING
    RETURNING group_id, partition_id, version
),
replaced AS (
    DELETE FROM penstock.positions p USING moved m
    CROSS JOIN LATERAL (
        SELECT o.ctid FROM penstock.positions o
        WHERE o.group_id = m.group_id AND o.partition_id = m.partition_id AND o.version < m.version
        ORDER BY o.version DESC LIMIT 1
    ) o
    WHERE p.ctid = o.ctid
)
UPDATE penstock.groups g SET dropped = g.dropped + b.unread
FROM (
    SELECT b.group_id, sum(b.unread)::bigint AS unread
    FROM behind b JOIN moved m ON m.group_id = b.group_id AND m.partition_id = b.partition_id
    GROUP BY b.group_id
) b
WHERE g.id = b.group_id
RETURNING g.name, b.unread

-- name: delete_segment
DELETE FROM penstock.segments WHERE queue_id = %(queue)s AND segment = %(segment)s

-- name: expired_ids
SELECT segment FROM penstock.segments
WHERE queue_id = %(queue)s AND has_ids AND sealed_at < clock_timestamp() + %(skew)s - make_interval(secs => least(%(seconds)s, 1e10))

-- name: delete_ids
UPDATE penstock.segments SET has_ids = false WHERE queue_id = %(queue)s AND segment = %(segment)s

-- name: idle_cursors
-- Cursors to park: drained, not leased, and idle for a while.
SELECT c.group_id, c.partition_id
FROM penstock.cursors c
JOIN penstock.groups g ON g.id = c.group_id
JOIN penstock.partitions t ON t.id = c.partition_id
CROSS JOIN LATERAL penstock.current_position(c.group_id, c.partition_id) p
WHERE g.queue_id = %(queue)s AND c.state = 0
  AND p.available_at <= clock_timestamp() + %(skew)s
  AND coalesce(p.moved_at, 'epoch') < clock_timestamp() + %(skew)s - make_interval(secs => %(seconds)s)
  AND p.next_offset >= coalesce(
      (SELECT k.end_offset FROM {chunks} k
       WHERE k.partition_id = c.partition_id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end)
LIMIT 10000

-- name: try_lock_cursors
SELECT c.group_id, c.partition_id FROM penstock.cursors c
JOIN unnest(%(groups)s::integer[], %(partitions)s::bigint[]) AS w (group_id, partition_id)
    ON w.group_id = c.group_id AND w.partition_id = c.partition_id
ORDER BY c.group_id, c.partition_id
FOR NO KEY UPDATE OF c SKIP LOCKED

-- name: try_lock_partitions
SELECT id FROM penstock.partitions WHERE id = ANY(%(partitions)s) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED

-- name: park
-- The cursors and partitions are locked, so no push or seek is running that could miss the new state.
UPDATE penstock.cursors c SET state = 1
FROM unnest(%(groups)s::integer[], %(partitions)s::bigint[]) AS w (group_id, partition_id)
CROSS JOIN LATERAL penstock.current_position(w.group_id, w.partition_id) p
JOIN penstock.partitions t ON t.id = w.partition_id
WHERE c.group_id = w.group_id AND c.partition_id = w.partition_id AND c.state = 0
  AND EXISTS (SELECT FROM penstock.queues q WHERE q.id = {queue} AND q.segment = {segment})
  AND p.next_offset >= coalesce(
      (SELECT k.end_offset FROM {chunks} k
       WHERE k.partition_id = w.partition_id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end)
