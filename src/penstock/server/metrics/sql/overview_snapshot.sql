-- Data of the overview that is not in the metrics. The cost depends on the number of queues, queries and rules.

-- name: queues
-- All queues with their maximum depth. is_output: a query or a rule writes to the queue.
SELECT q.name, q.max_depth_events,
       EXISTS (SELECT FROM penstock.queries r WHERE r.sink_queue = q.name)
       OR EXISTS (SELECT FROM penstock.rules r WHERE r.alerts = q.name) AS is_output
FROM penstock.queues q ORDER BY q.id LIMIT 2000

-- name: firing
SELECT s.rule, s.key, count(*) OVER () AS total FROM penstock.rule_states s WHERE s.is_firing
ORDER BY s.since DESC, s.rule, s.key LIMIT 20

-- name: failing_sinks
-- Running sinks whose last attempt failed.
SELECT q.name AS queue, g.name AS sink, t.error, t.is_resting FROM penstock.sink_totals t
JOIN penstock.groups g ON g.id = t.group_id
JOIN penstock.queues q ON q.id = g.queue_id
WHERE t.error IS NOT NULL AND t.is_running AND t.updated_at > clock_timestamp() - interval '30 seconds'
ORDER BY t.is_resting DESC, t.group_id LIMIT 100

-- name: failed_queries
-- Queries whose last cycle failed.
SELECT q.name, c.error FROM penstock.queries q
CROSS JOIN LATERAL (
    SELECT c.error FROM penstock.cycles c
    WHERE c.query_id = q.id AND (c.error IS NOT NULL OR c.committed_at IS NOT NULL) ORDER BY c.cycle DESC LIMIT 1
) c
WHERE c.error IS NOT NULL ORDER BY q.id LIMIT 100

-- name: ended_queries
-- Queries that have ended and were not stopped.
SELECT q.name FROM penstock.queries q WHERE q.lease_until > 'epoch' AND q.lease_until <= clock_timestamp()
