-- name: largest_partitions
-- Each partition with its first offset and the one after its last, the largest first.
SELECT p.id, p.name, p.epoch, b.first_offset, b.end_offset
FROM penstock.partitions p
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT l.first_offset FROM penstock.segment_partitions l
                     WHERE l.partition_id = p.id ORDER BY l.end_offset LIMIT 1), p.sealed_end) AS first_offset,
           coalesce((SELECT c.end_offset FROM {chunks} c
                     WHERE c.partition_id = p.id ORDER BY c.end_offset DESC LIMIT 1), p.sealed_end) AS end_offset
) b
WHERE p.queue_id = %(queue)s AND (%(name)s::text IS NULL OR p.name = %(name)s)
ORDER BY b.end_offset - b.first_offset DESC, p.id
LIMIT %(limit)s

-- name: partition_page
-- A page of partitions with their bounds and the lag of their slowest group. Other partitions are not read.
SELECT p.id, p.name, p.epoch, b.first_offset, b.end_offset, b.last_at, coalesce(g.lag, 0), coalesce(g.leases, 0),
       coalesce(g.attempts, 0)
FROM (
    SELECT t.id, t.name, t.epoch, t.sealed_end, t.sealed_at FROM penstock.partitions t
    WHERE t.queue_id = %(queue)s AND (%(search)s::text IS NULL OR strpos(lower(t.name), lower(%(search)s::text)) > 0)
    ORDER BY {order} LIMIT %(limit)s OFFSET %(offset)s
) p
LEFT JOIN LATERAL (
    SELECT c.end_offset, c.appended_at FROM {chunks} c WHERE c.partition_id = p.id ORDER BY c.end_offset DESC LIMIT 1
) c ON true
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT l.first_offset FROM penstock.segment_partitions l
                     WHERE l.partition_id = p.id ORDER BY l.end_offset LIMIT 1), p.sealed_end) AS first_offset,
           coalesce(c.end_offset, p.sealed_end) AS end_offset,
           coalesce(c.appended_at, nullif(p.sealed_at, 'epoch')) AS last_at
) b
LEFT JOIN LATERAL (
    SELECT max(greatest(b.end_offset - s.next_offset, 0)) AS lag, max(s.attempts) AS attempts,
           count(*) FILTER (WHERE s.lease_id IS NOT NULL AND s.available_at > clock_timestamp() + %(skew)s) AS leases
    FROM penstock.cursors r
    CROSS JOIN LATERAL penstock.current_position(r.group_id, r.partition_id) s
    WHERE r.partition_id = p.id
) g ON true

-- name: order_by_name
t.epoch, t.name

-- name: order_by_number
t.epoch, length(t.name), t.name
