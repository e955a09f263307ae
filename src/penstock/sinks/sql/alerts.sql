-- name: lock
SELECT definition, clock_timestamp(), created_at FROM penstock.rules WHERE name = %(name)s FOR NO KEY UPDATE

-- name: expect
INSERT INTO penstock.rule_states (rule, key, is_firing, seen_at, state)
SELECT %(name)s, key, false, %(since)s, '{}' FROM unnest(%(keys)s::text[]) AS n (key)
ON CONFLICT (rule, key) DO NOTHING

-- name: missing
SELECT key, state FROM penstock.rule_states
WHERE rule = %(name)s AND NOT is_firing AND seen_at < clock_timestamp() - make_interval(secs => %(seconds)s)
ORDER BY key LIMIT 1000

-- name: open_windows
SELECT s.key, s.window_start, s.window_end, s.value, s.updated_at
FROM penstock.state s
WHERE s.query = %(query)s AND s.updated_at > %(after)s AND s.key IS NOT NULL
ORDER BY s.updated_at, s.key LIMIT 10000
