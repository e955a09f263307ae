-- name: save
INSERT INTO penstock.rules (name, queue, alerts, definition)
VALUES (%(name)s, %(queue)s, %(alerts)s, %(definition)s::jsonb)
ON CONFLICT (name) DO UPDATE
SET queue = excluded.queue, alerts = excluded.alerts, definition = excluded.definition, updated_at = clock_timestamp()
WHERE rules.definition <> excluded.definition
RETURNING name

-- name: lock
SELECT definition FROM penstock.rules WHERE name = %(name)s FOR UPDATE

-- name: delete_states
DELETE FROM penstock.rule_states WHERE rule = %(name)s RETURNING key, state, clock_timestamp()

-- name: list
SELECT definition, (SELECT count(*) FROM penstock.rule_states s WHERE s.rule = r.name AND s.is_firing),
       (SELECT jsonb_object_agg(s.key, s.until) FROM penstock.rule_silences s
        WHERE s.rule = r.name AND s.until > clock_timestamp())
FROM penstock.rules r ORDER BY name

-- name: delete
DELETE FROM penstock.rules WHERE name = %(name)s

-- name: firing
SELECT rule, key, since FROM penstock.rule_states WHERE is_firing ORDER BY since, rule, key

-- name: find
SELECT definition FROM penstock.rules WHERE name = %(name)s

-- name: silence
INSERT INTO penstock.rule_silences (rule, key, until)
VALUES (%(name)s, %(key)s, clock_timestamp() + make_interval(secs => %(seconds)s::float8))
ON CONFLICT (rule, key) DO UPDATE SET until = excluded.until

-- name: end_silence
DELETE FROM penstock.rule_silences WHERE rule = %(name)s AND key = %(key)s

-- name: query
-- The newest query that closes windows into the queue.
SELECT q.name FROM penstock.queries q
WHERE q.sink_queue = %(queue)s
  AND EXISTS (SELECT FROM unnest(q.description) AS d (line) WHERE starts_with(d.line, 'window: '))
ORDER BY q.id DESC LIMIT 1

-- name: live_columns
-- The columns of a query's open windows, once it has some.
SELECT a.attname::text FROM pg_attribute a
WHERE a.attrelid = to_regclass(format('penstock_live.%%I', %(query)s::text)) AND a.attnum > 0 AND NOT a.attisdropped
