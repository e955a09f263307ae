-- name: lock
-- With since when it is as it is: what is expected is not missed before.
SELECT definition, clock_timestamp(), updated_at FROM penstock.rules WHERE name = %(name)s FOR NO KEY UPDATE

-- name: definition
SELECT definition FROM penstock.rules WHERE name = %(name)s

-- name: unread
-- When the oldest result was there that the group has not looked at; null if it has looked at all of them.
SELECT penstock.oldest_unread(g.id, q.id, q.segment)
FROM penstock.queues q JOIN penstock.groups g ON g.queue_id = q.id
WHERE q.name = %(queue)s AND g.name = %(group)s

-- name: expect
INSERT INTO penstock.rule_states (rule, key, is_firing, seen_at, state)
SELECT %(name)s, key, false, %(since)s, '{}' FROM unnest(%(keys)s::text[]) AS n (key)
ON CONFLICT (rule, key) DO NOTHING

-- name: missing
SELECT key, state FROM penstock.rule_states
WHERE rule = %(name)s AND NOT is_firing AND seen_at < %(now)s - make_interval(secs => %(seconds)s)
ORDER BY key LIMIT 1000

-- name: open_windows
SELECT s.key, s.window_start, s.window_end, s.value, s.updated_at
FROM penstock.state s
WHERE s.query = %(query)s AND s.key IS NOT NULL AND s.updated_at > %(since)s

-- name: is_selected
-- Whether a query sends on what it selects of its windows to the queue, which need not say when they ended.
SELECT EXISTS (
    SELECT FROM penstock.queries q
    WHERE q.sink_queue = %(queue)s
      AND EXISTS (SELECT FROM unnest(q.description) AS d (line) WHERE starts_with(d.line, 'window: '))
      AND EXISTS (SELECT FROM unnest(q.description) AS d (line) WHERE starts_with(d.line, 'field '))
)
