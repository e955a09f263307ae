-- name: lock
-- Lock a rule. Expected keys count as missing only from updated_at on.
SELECT definition, clock_timestamp() AS now, updated_at
FROM penstock.rules
WHERE name = %(name)s
FOR NO KEY UPDATE

-- name: definition
SELECT definition FROM penstock.rules WHERE name = %(name)s

-- name: unread
-- The time of the oldest event that the group has not read; null if it has read all.
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
-- Whether a query writes selected fields of its windows to the queue. Such rows need not have the end of the window.
SELECT EXISTS (
    SELECT FROM penstock.queries q
    WHERE q.sink_queue = %(queue)s
      AND EXISTS (SELECT FROM unnest(q.description) AS d (line) WHERE starts_with(d.line, 'window: '))
      AND EXISTS (SELECT FROM unnest(q.description) AS d (line) WHERE starts_with(d.line, 'field '))
)
