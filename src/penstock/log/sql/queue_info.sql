-- name: groups
-- The lag of each group, with the events in the inbox, and in how many partitions it is behind. The cost does not depend
-- on the number of events in the queue.
SELECT g.name, g.subscribed_from, g.query_id, g.created_at,
       coalesce(sum(greatest(h.end_offset - p.next_offset, 0)), 0)::bigint + i.events,
       count(*) FILTER (WHERE h.end_offset > p.next_offset),
       count(*) FILTER (WHERE p.lease_id IS NOT NULL AND p.available_at > clock_timestamp() + %(skew)s),
       g.counts, w.seen_at,
       coalesce(r.lease_until = 'epoch' OR w.seen_at < clock_timestamp() + %(skew)s
                - make_interval(secs => (SELECT q.away_seconds + q.delay_seconds FROM penstock.queues q
                                         WHERE q.id = %(queue)s)), false),
       CASE WHEN r.id IS NULL THEN NULL
            WHEN r.lease_until = 'epoch' THEN 'stopped'
            WHEN r.lease_until <= clock_timestamp() + %(skew)s THEN 'failed'
            WHEN r.is_paused THEN 'paused' ELSE 'running' END
FROM penstock.groups g
LEFT JOIN penstock.queries r ON r.name = g.query_id
CROSS JOIN penstock.inbox_events(%(queue)s::integer) AS i (events)
CROSS JOIN LATERAL (SELECT greatest(g.seen_at, r.lease_until) AS seen_at) w
LEFT JOIN penstock.cursors c ON c.group_id = g.id AND c.state <> 1
LEFT JOIN penstock.partitions t ON t.id = c.partition_id
LEFT JOIN LATERAL penstock.current_position(c.group_id, c.partition_id) p ON true
LEFT JOIN LATERAL (
    SELECT coalesce((SELECT k.end_offset FROM {chunks} k
                     WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end) AS end_offset
) h ON true
WHERE g.queue_id = %(queue)s
GROUP BY g.id, g.name, w.seen_at, r.id, i.events
ORDER BY g.name

-- name: stored_events
SELECT coalesce(sum(p.end_offset - p.first_offset), 0)::bigint + penstock.inbox_events(%(queue)s::integer)
FROM penstock.partitions_of(%(queue)s::integer, %(segment)s::integer) p

-- name: queue_size
-- Partitions, the sums of their end offsets and first offsets, the size on disk, the shed events, and those in the inbox.
SELECT p.partitions, p.end_offsets, p.first_offsets,
       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
        WHERE c.relnamespace = 'penstock'::regnamespace AND c.relkind = 'r' AND c.relname ~ %(tables)s),
       (SELECT coalesce(sum(s.events), 0)::bigint FROM penstock.shed_events s WHERE s.queue_id = %(queue)s),
       penstock.inbox_events(%(queue)s::integer)
FROM (
    SELECT count(*) AS partitions,
           coalesce(sum(coalesce((SELECT k.end_offset FROM {chunks} k
                                  WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1),
                                 t.sealed_end)), 0)::bigint AS end_offsets,
           coalesce(sum(coalesce((SELECT l.first_offset FROM penstock.segment_partitions l
                                  WHERE l.partition_id = t.id ORDER BY l.end_offset LIMIT 1),
                                 t.sealed_end)), 0)::bigint AS first_offsets
    FROM penstock.partitions t WHERE t.queue_id = %(queue)s
) p
