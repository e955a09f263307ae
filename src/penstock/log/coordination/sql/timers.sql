-- name: schedule
SELECT due_at, event_id, replaced
FROM penstock.schedule_timer(
    %(queue)s, %(key)s, %(data)s::json, make_interval(secs => %(seconds)s::double precision), %(event_key)s::text,
    %(event_id)s, %(headers)s::jsonb, %(skew)s)

-- name: cancel
SELECT event_id FROM penstock.cancel_timer(%(queue)s, %(key)s)

-- name: find
SELECT t.key, t.due_at, t.event_id, t.event_key, t.data::text, t.headers, t.scheduled_at
FROM penstock.timers t JOIN penstock.queues q ON q.id = t.queue_id
WHERE q.name = %(queue)s AND t.key = %(key)s

-- name: list
SELECT t.key, t.due_at, t.event_id, t.event_key, NULL, t.headers, t.scheduled_at
FROM penstock.timers t
WHERE t.queue_id = (SELECT q.id FROM penstock.queues q WHERE q.name = %(queue)s) AND t.key > %(after)s
ORDER BY t.key LIMIT %(limit)s
