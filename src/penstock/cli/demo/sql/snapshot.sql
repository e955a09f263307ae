-- The current numbers of the demo, from the public views.

-- name: queries
SELECT q.name, coalesce(t.cycles, 0), coalesce(t.events_in, 0), coalesce(t.dead, 0),
       coalesce((SELECT sum(l.lag) FROM penstock.lag l WHERE l.group_name = q.name), 0)::bigint
FROM penstock.queries q
LEFT JOIN penstock.query_totals t ON t.query_id = q.id
WHERE q.name = ANY (%(names)s)
ORDER BY q.id

-- name: freshness
-- The median age of the oldest event of a cycle when its result was committed, in the last cycles.
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM c.committed_at - c.oldest_at)::float8)
FROM penstock.cycles c
JOIN penstock.queries q ON q.id = c.query_id
WHERE q.name = ANY (%(names)s) AND c.committed_at > clock_timestamp() - interval '10 seconds' AND c.oldest_at IS NOT NULL

-- name: online
SELECT o.key, o.users FROM penstock_live.online_current o ORDER BY o.users DESC LIMIT %(limit)s

-- name: pages
SELECT p.key, p.views FROM penstock_live.pages_current p ORDER BY p.views DESC LIMIT %(limit)s

-- name: revenue
SELECT r.key, sum(r.revenue) FROM penstock_history.revenue r GROUP BY r.key ORDER BY sum(r.revenue) DESC LIMIT %(limit)s

-- name: sensors
SELECT s.key, round(s.avg, 1) FROM penstock_live.sensors_current s ORDER BY s.avg DESC LIMIT %(limit)s

-- name: firing
SELECT s.rule, s.key FROM penstock.rule_states s WHERE s.is_firing ORDER BY s.since DESC

-- name: appended
SELECT d.queue, d.appended FROM penstock.depth d WHERE d.queue = ANY (%(queues)s)

-- name: dead_letters
SELECT d.group_name, count(*) FROM penstock.dead_letters d
WHERE d.redriven_at IS NULL GROUP BY d.group_name ORDER BY d.group_name

-- name: gates
SELECT coalesce(sum(g.allowed_total), 0)::bigint FROM penstock.gates g WHERE g.query = 'partner'

-- name: existing
SELECT name FROM penstock.queues WHERE name = ANY (%(queues)s)
UNION ALL
SELECT name FROM penstock.queries WHERE name = ANY (%(names)s)
