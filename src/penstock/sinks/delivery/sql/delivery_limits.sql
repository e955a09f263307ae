-- name: gates
-- The gates of the queries that write to a queue. The limits of the newest query apply.
SELECT r.name, u.kind, (u.amount * 1000000000)::bigint, (coalesce(u.rate, 0) * 1000000000)::bigint,
       coalesce(u.window_us, 0), u.shared
FROM penstock.queries r JOIN penstock.gate_rules u ON u.query_id = r.id
WHERE r.sink_queue = %(queue)s
ORDER BY r.id, u.gate

-- name: lock
-- One process at a time reserves for a group.
SELECT pg_advisory_xact_lock(7812746, %(group)s::integer)

-- name: limits
SELECT key, gate, amount, rate, window_us, weight, paused, hold_until
FROM penstock.gate_limits WHERE query = %(query)s AND key = ANY(%(keys)s)

-- name: meters
SELECT key, gate, amount, rate, at_us, in_flight, level, grant_times, grant_costs
FROM penstock.delivery_meters WHERE group_id = %(group)s AND key = ANY(%(keys)s)

-- name: forget
-- A bucket that has been full for a day is like none.
DELETE FROM penstock.delivery_meters
WHERE group_id = %(group)s AND rate > 0 AND in_flight = 0 AND at_us < %(now_us)s - 86400000000
  AND level * 1000000000 + rate * 0.000001 * (%(now_us)s - 86400000000 - at_us) >= amount

-- name: clock
SELECT clock_timestamp()

-- name: store
INSERT INTO penstock.delivery_meters AS m (group_id, key, gate, amount, rate, at_us, in_flight, level, grant_times,
                                           grant_costs)
SELECT %(group)s, w.key, w.gate, w.amount, w.rate, w.at_us, w.in_flight, w.level, w.times::bigint[], w.costs::bigint[]
FROM unnest(%(keys)s::text[], %(gates)s::smallint[], %(amounts)s::bigint[], %(rates)s::bigint[], %(ats)s::bigint[],
            %(flights)s::bigint[],            %(levels)s::numeric[], %(times)s::text[], %(costs)s::text[])
    AS w (key, gate, amount, rate, at_us, in_flight, level, times, costs)
ON CONFLICT (group_id, key, gate) DO UPDATE SET amount = excluded.amount, rate = excluded.rate,
    at_us = excluded.at_us, in_flight = excluded.in_flight, level = excluded.level, grant_times = excluded.grant_times,
    grant_costs = excluded.grant_costs
