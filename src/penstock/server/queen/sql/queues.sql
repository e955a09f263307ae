-- name: list
-- A queue without a stored namespace and task takes them from its dotted name: namespace.task.
SELECT q.id, q.name, n.namespace, n.task, q.created_at
FROM penstock.queues q
LEFT JOIN penstock.queen_queues m ON m.queue_id = q.id
CROSS JOIN LATERAL (
    SELECT coalesce(m.namespace, CASE WHEN strpos(q.name, '.') > 0 THEN split_part(q.name, '.', 1) ELSE '' END)
               AS namespace,
           coalesce(m.task, split_part(q.name, '.', 2)) AS task
) n
WHERE (%(namespace)s::text IS NULL OR n.namespace = %(namespace)s)
  AND (%(task)s::text IS NULL OR n.task = %(task)s)
ORDER BY q.name
