-- name: about
SELECT m.namespace, m.task, m.options FROM penstock.plane_queues m WHERE m.queue_id = %(queue)s

-- name: keep
INSERT INTO penstock.plane_queues (queue_id, namespace, task, options)
VALUES (%(queue)s, %(namespace)s, %(task)s, %(options)s)
ON CONFLICT (queue_id) DO UPDATE SET namespace = excluded.namespace, task = excluded.task, options = excluded.options

-- name: catalog
-- Every queue with its namespace and task: as it was told, or as its dotted name says.
SELECT q.id, q.name, n.namespace, n.task, q.created_at
FROM penstock.queues q
LEFT JOIN penstock.plane_queues m ON m.queue_id = q.id
CROSS JOIN LATERAL (
    SELECT coalesce(m.namespace, CASE WHEN strpos(q.name, '.') > 0 THEN split_part(q.name, '.', 1) ELSE '' END)
               AS namespace,
           coalesce(m.task, split_part(q.name, '.', 2)) AS task
) n
WHERE (%(namespace)s::text IS NULL OR n.namespace = %(namespace)s)
  AND (%(task)s::text IS NULL OR n.task = %(task)s)
ORDER BY q.name
