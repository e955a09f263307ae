-- name: record_shed
INSERT INTO penstock.shed_events (queue_id, events, shed_at)
SELECT w.queue_id, w.events, clock_timestamp() + %(skew)s
FROM unnest(%(queues)s::integer[], %(events)s::bigint[]) AS w (queue_id, events)
JOIN penstock.queues q ON q.id = w.queue_id

-- name: merge_shed
-- Replaces the rows of a queue by their sum.
WITH gone AS (
    DELETE FROM penstock.shed_events s WHERE s.queue_id IN (
        SELECT m.queue_id FROM penstock.shed_events m GROUP BY m.queue_id HAVING count(*) > 100)
    RETURNING s.queue_id, s.events, s.shed_at
)
INSERT INTO penstock.shed_events (queue_id, events, shed_at)
SELECT g.queue_id, sum(g.events)::bigint, max(g.shed_at) FROM gone g GROUP BY g.queue_id
