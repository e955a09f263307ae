-- name: group_lag
-- How far each group of the queue is behind, in how many partitions: a subtraction each, whatever the history.
SELECT g.name, coalesce(sum(greatest(h.end_offset - p.next_offset, 0)), 0)::bigint,
       count(*) FILTER (WHERE h.end_offset > p.next_offset),
       count(*) FILTER (WHERE p.lease_id IS NOT NULL AND p.available_at > clock_timestamp() + %(skew)s)
FROM penstock.groups g
LEFT JOIN penstock.cursors c ON c.group_id = g.id AND c.state <> 1
LEFT JOIN penstock.partitions t ON t.id = c.partition_id
LEFT JOIN LATERAL (
    SELECT * FROM penstock.positions p
    WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id ORDER BY p.version DESC LIMIT 1
) p ON true
LEFT JOIN LATERAL (
    SELECT coalesce((SELECT k.end_offset FROM {chunks} k
                     WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end) AS end_offset
) h ON true
WHERE g.queue_id = %(queue)s
GROUP BY g.id, g.name
ORDER BY g.name

-- name: queue_size
SELECT count(*),
       coalesce(sum(coalesce((SELECT k.end_offset FROM {chunks} k
                 WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end)), 0)::bigint,
       coalesce(sum(coalesce((SELECT l.first_offset FROM penstock.segment_lanes l
                 WHERE l.partition_id = t.id ORDER BY l.end_offset LIMIT 1), t.sealed_end)), 0)::bigint
FROM penstock.partitions t WHERE t.queue_id = %(queue)s

-- name: queue_bytes
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
WHERE c.relnamespace = 'penstock'::regnamespace AND c.relkind = 'r' AND c.relname ~ %(tables)s
