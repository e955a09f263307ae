-- A query that was stopped does not count for the depth limit of its queues. The lease of a stopped query ends at 'epoch',
-- that of a failed one at the time of the failure.
CREATE OR REPLACE VIEW penstock.lag AS
SELECT q.name AS queue, g.name AS group_name,
       (SELECT count(*) FROM penstock.cursors c WHERE c.group_id = g.id) AS partitions,
       s.partitions_behind, s.lag, s.leases, g.counts, w.seen_at,
       -- A group without pops for long does not count for the depth limit of the queue.
       coalesce(r.lease_until = 'epoch'
                OR w.seen_at < clock_timestamp() - make_interval(secs => q.away_seconds + q.delay_seconds), false) AS away
FROM penstock.queues q
JOIN penstock.groups g ON g.queue_id = q.id
LEFT JOIN penstock.queries r ON r.name = g.query_id
CROSS JOIN LATERAL (SELECT greatest(g.seen_at, r.lease_until) AS seen_at) w
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE s.end_offset > s.next_offset) AS partitions_behind,
           coalesce(sum(greatest(s.end_offset - s.next_offset, 0)), 0)::bigint AS lag,
           count(*) FILTER (WHERE s.leased) AS leases
    FROM penstock.partition_progress(g.id, q.id, q.segment) s
) s;
