-- name: group_lag
-- How far each group of the queue is behind, in how many partitions: a subtraction each, whatever the history.
SELECT g.name, coalesce(sum(greatest(h.end_offset - p.next_offset, 0)), 0)::bigint,
       count(*) FILTER (WHERE h.end_offset > p.next_offset),
       count(*) FILTER (WHERE p.lease_id IS NOT NULL AND p.available_at > clock_timestamp() + %(skew)s),
       g.counts, w.seen_at,
       coalesce(w.seen_at < clock_timestamp() + %(skew)s
                - make_interval(secs => (SELECT q.away_seconds + q.delay_seconds FROM penstock.queues q
                                         WHERE q.id = %(queue)s)), false)
FROM penstock.groups g
LEFT JOIN penstock.queries r ON r.name = g.query_id
CROSS JOIN LATERAL (SELECT greatest(g.seen_at, r.lease_until) AS seen_at) w
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
GROUP BY g.id, g.name, w.seen_at
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

-- name: shed
INSERT INTO penstock.shed (queue_id, events, shed_at)
SELECT w.queue_id, w.events, clock_timestamp() + %(skew)s
FROM unnest(%(queues)s::integer[], %(events)s::bigint[]) AS w (queue_id, events)
JOIN penstock.queues q ON q.id = w.queue_id

-- name: shed_so_far
SELECT coalesce(sum(s.events), 0)::bigint FROM penstock.shed s WHERE s.queue_id = %(queue)s

-- name: add_up_shed
-- Rows that are in one anyway become one.
WITH gone AS (
    DELETE FROM penstock.shed s WHERE s.queue_id IN (
        SELECT m.queue_id FROM penstock.shed m GROUP BY m.queue_id HAVING count(*) > 100)
    RETURNING s.queue_id, s.events, s.shed_at
)
INSERT INTO penstock.shed (queue_id, events, shed_at)
SELECT g.queue_id, sum(g.events)::bigint, max(g.shed_at) FROM gone g GROUP BY g.queue_id
