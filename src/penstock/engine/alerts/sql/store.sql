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
SELECT definition, (SELECT count(*) FROM penstock.rule_states s WHERE s.rule = r.name AND s.is_firing)
FROM penstock.rules r ORDER BY name

-- name: delete
DELETE FROM penstock.rules WHERE name = %(name)s

-- name: firing
SELECT rule, key, since FROM penstock.rule_states WHERE is_firing ORDER BY since, rule, key

-- name: find
SELECT definition FROM penstock.rules WHERE name = %(name)s
