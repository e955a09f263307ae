-- name: stored
SELECT m.namespace, m.task, m.options FROM penstock.queen_queues m WHERE m.queue_id = %(queue)s

-- name: store
INSERT INTO penstock.queen_queues (queue_id, namespace, task, options)
VALUES (%(queue)s, %(namespace)s, %(task)s, %(options)s)
ON CONFLICT (queue_id) DO UPDATE SET namespace = excluded.namespace, task = excluded.task, options = excluded.options
