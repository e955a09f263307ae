-- name: page
-- Some partitions with what each holds and how far its slowest group is behind. Only those of the page are looked into.
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
    SELECT coalesce((SELECT l.first_offset FROM penstock.segment_lanes l
                     WHERE l.partition_id = p.id ORDER BY l.end_offset LIMIT 1), p.sealed_end) AS first_offset,
           coalesce(c.end_offset, p.sealed_end) AS end_offset,
           coalesce(c.appended_at, nullif(p.sealed_at, 'epoch')) AS last_at
) b
LEFT JOIN LATERAL (
    SELECT max(greatest(b.end_offset - s.next_offset, 0)) AS lag, max(s.attempts) AS attempts,
           count(*) FILTER (WHERE s.lease_id IS NOT NULL AND s.available_at > clock_timestamp() + %(skew)s) AS leases
    FROM penstock.cursors r
    CROSS JOIN LATERAL (
        SELECT * FROM penstock.positions s
        WHERE s.group_id = r.group_id AND s.partition_id = r.partition_id ORDER BY s.version DESC LIMIT 1
    ) s
    WHERE r.partition_id = p.id
) g ON true

-- name: by_name
t.epoch, t.name

-- name: by_number
t.epoch, length(t.name), t.name

-- name: behind
-- Where a group has most to read; lanes that are drained and idle are not looked at.
SELECT t.name, t.id, t.epoch, p.next_offset, h.end_offset,
       p.lease_id IS NOT NULL AND p.available_at > clock_timestamp() + %(skew)s, p.available_at, p.attempts, p.moved_at
FROM penstock.cursors c
JOIN penstock.partitions t ON t.id = c.partition_id
CROSS JOIN LATERAL (
    SELECT * FROM penstock.positions p
    WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id ORDER BY p.version DESC LIMIT 1
) p
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT k.end_offset FROM {chunks} k
                     WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end) AS end_offset
) h
WHERE c.group_id = %(group)s AND c.state <> 1 AND h.end_offset > p.next_offset
ORDER BY h.end_offset - p.next_offset DESC, t.id
LIMIT %(limit)s
