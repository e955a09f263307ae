-- Metrics of queues, groups and queries: the labels of a series first, then one column per metric, named as the metric
-- without its prefix. The column of a histogram holds the counts of its buckets; another one ends in _sum. Each
-- statement does one lookup per partition in use, or per queue, group or query; none reads events.

-- name: queues
SELECT d.queue, d.partitions AS queue_partitions, d.events AS queue_events, d.appended AS queue_appended_events,
       d.shed AS queue_shed_events, d.inbox AS queue_inbox_events
FROM penstock.depth d
ORDER BY d.queue
LIMIT %(limit)s

-- name: groups
SELECT l.queue, l.group_name AS "group", l.lag AS group_lag_events, (l.counts AND NOT l.away)::int AS group_counts,
       l.partitions_behind AS group_partitions_behind, l.leases AS group_leases, g.dropped AS group_dropped_events,
       CASE WHEN l.lag > 0
            THEN greatest(extract(epoch FROM clock_timestamp() - penstock.oldest_unread(g.id, q.id, q.segment)), 0)
            ELSE 0 END::float8 AS group_oldest_seconds
FROM penstock.lag l
JOIN penstock.queues q ON q.name = l.queue
JOIN penstock.groups g ON g.queue_id = q.id AND g.name = l.group_name
ORDER BY l.queue, l.group_name
LIMIT %(limit)s

-- name: dead_letters
SELECT q.name AS queue, d.group_name AS "group", d.events AS dead_letters
FROM penstock.queues q
CROSS JOIN LATERAL (
    SELECT l.group_name, count(*) AS events FROM penstock.dead_letters l
    WHERE l.queue_id = q.id AND l.redriven_at IS NULL GROUP BY l.group_name
) d
ORDER BY q.id, d.group_name
LIMIT %(limit)s

-- name: queries
SELECT q.name AS query, (q.lease_until > clock_timestamp())::int AS query_running, q.is_paused::int AS query_paused,
       coalesce(t.cycles, 0) AS query_cycles, coalesce(t.failed, 0) AS query_failed_cycles,
       coalesce(t.events_in, 0) AS query_events, coalesce(t.events_out, 0) AS query_output_events,
       coalesce(t.windows, 0) AS query_windows, coalesce(t.late, 0) AS query_late_events,
       coalesce(t.dead, 0) AS query_dead_letters,
       coalesce(t.cycle_counts, '{}') AS query_cycle_seconds, coalesce(t.cycle_seconds, 0) AS query_cycle_seconds_sum,
       coalesce(t.fresh_counts, '{}') AS query_freshness_seconds,
       coalesce(t.fresh_seconds, 0) AS query_freshness_seconds_sum,
       CASE WHEN l.committed_at IS NOT NULL
            THEN greatest(extract(epoch FROM clock_timestamp() - l.committed_at), 0)
            END::float8 AS query_last_commit_seconds,
       extract(epoch FROM clock_timestamp() - w.watermark)::float8 AS query_watermark_lag_seconds,
       coalesce(p.events, 0) / 10.0::float8 AS query_events_per_second
FROM penstock.queries q
LEFT JOIN penstock.query_totals t ON t.query_id = q.id
LEFT JOIN LATERAL (
    SELECT c.committed_at FROM penstock.cycles c
    WHERE c.query_id = q.id AND c.committed_at IS NOT NULL ORDER BY c.cycle DESC LIMIT 1
) l ON true
LEFT JOIN LATERAL (
    -- A cycle that only closes windows may have no watermark; one of the last hundred cycles has one.
    SELECT n.watermark FROM (
        SELECT c.watermark FROM penstock.cycles c WHERE c.query_id = q.id ORDER BY c.cycle DESC LIMIT 100
    ) n WHERE n.watermark IS NOT NULL LIMIT 1
) w ON true
LEFT JOIN LATERAL (
    -- A query commits at most about a hundred cycles in ten seconds.
    SELECT sum(n.events_in)::bigint AS events FROM (
        SELECT c.events_in, c.committed_at FROM penstock.cycles c
        WHERE c.query_id = q.id ORDER BY c.cycle DESC LIMIT 200
    ) n WHERE n.committed_at > clock_timestamp() - interval '10 seconds'
) p ON true
ORDER BY q.id
LIMIT %(limit)s

-- name: client_queries
-- Queries that clients compute. A group's seen_at is updated once a minute.
SELECT q.name AS query, coalesce(g.seen_at > clock_timestamp() - interval '2 minutes', false)::int AS query_running,
       coalesce(t.cycles, 0) AS query_cycles, coalesce(t.events_in, 0) AS query_events,
       coalesce(t.events_out, 0) AS query_output_events, coalesce(t.windows, 0) AS query_windows,
       coalesce(t.dead, 0) AS query_dead_letters, w.windows AS query_open_windows,
       coalesce(t.recent, 0) / 10.0::float8 AS query_events_per_second,
       greatest(extract(epoch FROM clock_timestamp() - t.committed_at), 0)::float8 AS query_last_commit_seconds
FROM penstock.client_queries q
LEFT JOIN penstock.queues k ON k.name = q.source_queue
LEFT JOIN penstock.groups g ON g.queue_id = k.id AND g.name = q.group_name
CROSS JOIN LATERAL (
    SELECT sum(t.cycles)::bigint AS cycles, sum(t.events_in)::bigint AS events_in,
           sum(t.events_out)::bigint AS events_out, sum(t.windows)::bigint AS windows, sum(t.dead)::bigint AS dead,
           max(t.committed_at) AS committed_at,
           sum(CASE t.period WHEN penstock.rate_period() THEN t.previous_events
                             WHEN penstock.rate_period() - 1 THEN t.period_events END)::bigint AS recent
    FROM penstock.client_query_totals t WHERE t.query_id = q.id
) t
CROSS JOIN LATERAL (
    SELECT count(*) AS windows FROM penstock.client_query_state s WHERE s.query_id = q.id AND strpos(s.state_key, chr(31)) > 0
) w
ORDER BY q.id
LIMIT %(limit)s

-- name: queries_with_windows
SELECT id AS query_id, name AS query FROM penstock.queries WHERE result IS NOT NULL ORDER BY id LIMIT %(limit)s

-- name: open_windows
SELECT count(*) FROM penstock.state_{id}

-- name: views
SELECT q.name AS query, coalesce(s.n_live_tup, 0)::bigint AS view_rows,
       coalesce(pg_total_relation_size(s.relid), 0)::bigint AS view_bytes,
       (q.view ->> 'max_state_bytes')::bigint AS view_state_limit_bytes
FROM penstock.queries q
LEFT JOIN pg_stat_user_tables s ON s.relid = to_regclass('penstock.view_' || q.id)
WHERE q.view IS NOT NULL
ORDER BY q.id
LIMIT %(limit)s

-- name: view_operators
-- One row of state_runs is a piece of up to 65,536 rows, whose size is known without reading it: 12,000 pieces of 20 views
-- take 5 ms.
SELECT q.name AS query, o.operator::text AS operator, left(o.name, 100) AS description,
       coalesce(s.rows, 0) AS view_operator_rows, coalesce(s.bytes, 0) AS view_operator_bytes
FROM penstock.queries q
CROSS JOIN LATERAL jsonb_array_elements_text(q.view -> 'state_names') WITH ORDINALITY AS o (name, operator)
LEFT JOIN (
    SELECT r.query_id, r.operator, sum(r.rows)::bigint AS rows, sum(octet_length(r.data))::bigint AS bytes
    FROM penstock.state_runs r WHERE r.is_current GROUP BY r.query_id, r.operator
) s ON s.query_id = q.id AND s.operator = o.operator
ORDER BY q.id, o.operator
LIMIT %(limit)s

-- name: gates
SELECT q.name AS query, sum(l.allowed)::bigint AS gate_allowed_events,
       count(*) FILTER (WHERE l.denied_since IS NOT NULL) AS gate_waiting_partitions,
       greatest(extract(epoch FROM clock_timestamp() - min(l.denied_since)), 0)::float8 AS gate_longest_wait_seconds
FROM penstock.gate_keys l JOIN penstock.queries q ON q.id = l.query_id
GROUP BY q.id, q.name
ORDER BY q.id
LIMIT %(limit)s

-- name: sinks
SELECT q.name AS queue, g.name AS "group", t.written AS sink_written_events, t.retries AS sink_retries,
       t.busy AS sink_busy, t.dead_letters AS sink_dead_letters, t.lost AS sink_lost_events,
       r.running::int AS sink_running, (r.running AND t.is_resting)::int AS sink_resting
FROM penstock.sink_totals t
JOIN penstock.groups g ON g.id = t.group_id
JOIN penstock.queues q ON q.id = g.queue_id
CROSS JOIN LATERAL (
    SELECT t.is_running AND t.updated_at > clock_timestamp() - interval '30 seconds' AS running
) r
ORDER BY t.group_id
LIMIT %(limit)s
