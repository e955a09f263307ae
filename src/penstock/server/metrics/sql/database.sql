-- What the database knows of queues, groups and queries, for metrics. Each statement is a lookup per partition in use, or
-- per queue, group or query, never per event.

-- name: queues
SELECT d.queue, d.partitions, d.events, d.appended, d.shed FROM penstock.depth d ORDER BY d.queue LIMIT %(most)s

-- name: groups
SELECT l.queue, l.group_name, l.lag, l.counts AND NOT l.away, l.partitions_behind, l.leases, g.dropped,
       CASE WHEN l.lag > 0 THEN extract(epoch FROM clock_timestamp() - penstock.oldest_unread(g.id, q.id, q.segment))
       ELSE 0 END::float8
FROM penstock.lag l
JOIN penstock.queues q ON q.name = l.queue
JOIN penstock.groups g ON g.queue_id = q.id AND g.name = l.group_name
ORDER BY l.queue, l.group_name LIMIT %(most)s

-- name: dead_letters
SELECT q.name, d.group_name, d.events
FROM penstock.queues q
CROSS JOIN LATERAL (
    SELECT l.group_name, count(*) AS events FROM penstock.dead_letters l
    WHERE l.queue_id = q.id AND l.redriven_at IS NULL GROUP BY l.group_name
) d
ORDER BY q.id, d.group_name LIMIT %(most)s

-- name: queries
SELECT q.name, q.lease_until > clock_timestamp(), q.is_paused, coalesce(t.cycles, 0), coalesce(t.failed, 0),
       coalesce(t.events_in, 0), coalesce(t.events_out, 0), coalesce(t.windows, 0), coalesce(t.late, 0),
       coalesce(t.dead, 0), coalesce(t.cycle_counts, '{}'), coalesce(t.cycle_seconds, 0),
       coalesce(t.fresh_counts, '{}'), coalesce(t.fresh_seconds, 0),
       extract(epoch FROM clock_timestamp() - l.committed_at)::float8,
       extract(epoch FROM clock_timestamp() - w.watermark)::float8, coalesce(p.events, 0)
FROM penstock.queries q
LEFT JOIN penstock.query_totals t ON t.query_id = q.id
LEFT JOIN LATERAL (
    SELECT c.committed_at FROM penstock.cycles c
    WHERE c.query_id = q.id AND c.committed_at IS NOT NULL ORDER BY c.cycle DESC LIMIT 1
) l ON true
LEFT JOIN LATERAL (
    -- A cycle that only closes windows may not know; of the last hundred, one does.
    SELECT n.watermark FROM (
        SELECT c.watermark FROM penstock.cycles c WHERE c.query_id = q.id ORDER BY c.cycle DESC LIMIT 100
    ) n WHERE n.watermark IS NOT NULL LIMIT 1
) w ON true
LEFT JOIN LATERAL (
    -- The last 10 seconds have a hundred cycles at the most.
    SELECT sum(n.events_in)::bigint AS events FROM (
        SELECT c.events_in, c.committed_at FROM penstock.cycles c
        WHERE c.query_id = q.id ORDER BY c.cycle DESC LIMIT 200
    ) n WHERE n.committed_at > clock_timestamp() - interval '10 seconds'
) p ON true
ORDER BY q.id LIMIT %(most)s

-- name: open_windows
SELECT count(*) FROM penstock.state_{id}

-- name: with_windows
SELECT id, name FROM penstock.queries WHERE result IS NOT NULL ORDER BY id LIMIT %(most)s

-- name: gates
SELECT q.name, sum(l.allowed)::bigint, count(*) FILTER (WHERE l.denied_since IS NOT NULL),
       coalesce(extract(epoch FROM clock_timestamp() - min(l.denied_since)), 0)::float8
FROM penstock.gate_lanes l JOIN penstock.queries q ON q.id = l.query_id
GROUP BY q.id, q.name ORDER BY q.id LIMIT %(most)s

-- name: sinks
SELECT q.name, g.name, t.written, t.retries, t.busy, t.dead_letters, t.lost,
       t.is_running AND t.updated_at > clock_timestamp() - interval '30 seconds', t.is_resting
FROM penstock.sink_totals t
JOIN penstock.groups g ON g.id = t.group_id
JOIN penstock.queues q ON q.id = g.queue_id
ORDER BY t.group_id LIMIT %(most)s
