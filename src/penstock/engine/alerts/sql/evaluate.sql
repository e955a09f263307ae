-- name: lock_rules
-- Always in the same order, so that concurrent evaluations cannot deadlock.
SELECT definition FROM penstock.rules WHERE queue = %(queue)s ORDER BY name FOR NO KEY UPDATE

-- name: states
SELECT key, state FROM penstock.rule_states WHERE rule = %(name)s AND key = ANY (%(keys)s)

-- name: silenced
SELECT key FROM penstock.rule_silences
WHERE rule = %(name)s AND key = ANY (%(keys)s) AND until > clock_timestamp()

-- name: store_states
INSERT INTO penstock.rule_states (rule, key, is_firing, since, seen_at, state)
SELECT %(name)s, key, is_firing, since, coalesce(seen_at, clock_timestamp()), state::jsonb
FROM unnest(%(keys)s::text[], %(firing)s::boolean[], %(since)s::timestamptz[], %(seen)s::timestamptz[], %(states)s::text[])
    AS n (key, is_firing, since, seen_at, state)
ON CONFLICT (rule, key) DO UPDATE
SET is_firing = excluded.is_firing, since = excluded.since, state = excluded.state,
    seen_at = CASE WHEN %(is_seen)s THEN greatest(rule_states.seen_at, excluded.seen_at) ELSE rule_states.seen_at END
