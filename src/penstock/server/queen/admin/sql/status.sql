-- name: queues
-- Without a group, all messages of a queue are pending.
SELECT d.queue, d.partitions, d.events AS total, coalesce(l.lag, d.events) AS pending, coalesce(l.leases, 0) AS leases,
       coalesce(x.events, 0) AS dead_letters
FROM penstock.depth d
JOIN penstock.queues q ON q.name = d.queue
LEFT JOIN (
    SELECT g.queue, max(g.lag) AS lag, sum(g.leases)::bigint AS leases FROM penstock.lag g GROUP BY g.queue
) l ON l.queue = d.queue
LEFT JOIN (
    SELECT t.queue_id, count(*) AS events FROM penstock.dead_letters t WHERE t.redriven_at IS NULL GROUP BY t.queue_id
) x ON x.queue_id = q.id
ORDER BY d.queue
