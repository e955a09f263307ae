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
