-- name: partitions
SELECT partition_id, passed, allowed, deficit, denied_since IS NOT NULL, next_at IS NOT NULL, wakes_at IS NOT NULL,
       coalesce((SELECT jsonb_object_agg(s.gate, s.cost_total) FROM penstock.gate_states s
                 WHERE s.query_id = l.query_id AND s.partition_id = l.partition_id), '{}')
FROM penstock.gate_keys l
WHERE query_id = %(query)s AND partition_id = ANY(%(partitions)s::bigint[])

-- name: meters
SELECT partition_id, gate, at_us, level, grant_times, grant_costs, turn
FROM penstock.gate_states WHERE query_id = %(query)s AND partition_id = ANY(%(partitions)s::bigint[])

-- name: limits
SELECT key, gate, amount, rate, window_us, weight, paused, hold_until
FROM penstock.gate_limits WHERE query = %(name)s AND key = ANY(%(keys)s)

-- name: in_flight
-- The number of events of each partition that the group has not acknowledged.
SELECT w.partition_id,
       coalesce((SELECT k.end_offset FROM {chunks} k
                 WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end)
           - p.next_offset - cardinality(p.skipped)
FROM unnest(%(partitions)s::bigint[], %(keys)s::text[]) AS w (partition_id, key)
JOIN penstock.partitions t ON t.queue_id = %(sink)s AND t.epoch = %(epoch)s AND t.name = w.key
CROSS JOIN LATERAL penstock.current_position(%(group)s::integer, t.id) p

-- name: store_partitions
INSERT INTO penstock.gate_keys AS l (query_id, partition_id, key, passed, allowed, denied_since, next_at, wakes_at,
                                      waits_for_acks, deficit, wants, decided_at)
SELECT %(query)s, w.partition_id, w.key, w.passed, w.allowed, CASE WHEN w.denied THEN %(now)s END,
       penstock.moment(w.next_us), penstock.moment(w.wakes_us), w.waits, w.deficit, w.wants, %(now)s
FROM unnest(%(partitions)s::bigint[], %(keys)s::text[], %(passed)s::bigint[], %(allowed)s::bigint[],
            %(denied)s::boolean[], %(nexts)s::bigint[], %(wakes)s::bigint[], %(waits)s::boolean[],
            %(deficits)s::bigint[], %(wants)s::integer[])
    AS w (partition_id, key, passed, allowed, denied, next_us, wakes_us, waits, deficit, wants)
ON CONFLICT (query_id, partition_id) DO UPDATE SET
    passed = l.passed + excluded.passed, allowed = l.allowed + excluded.allowed,
    denied_since = CASE WHEN excluded.denied_since IS NULL THEN NULL
                        WHEN excluded.allowed > 0 THEN excluded.denied_since
                        ELSE coalesce(l.denied_since, excluded.denied_since) END,
    next_at = excluded.next_at, wakes_at = excluded.wakes_at, waits_for_acks = excluded.waits_for_acks,
    deficit = excluded.deficit, wants = excluded.wants, decided_at = excluded.decided_at

-- name: store_meters
INSERT INTO penstock.gate_states AS s (query_id, partition_id, gate, amount, rate, window_us, at_us, level, grant_times,
                                       grant_costs, cost_total, turn)
SELECT %(query)s, w.partition_id, w.gate, w.amount, w.rate, w.window_us, w.at_us, w.level, w.times::bigint[],
       w.costs::bigint[], w.cost, w.turn
FROM unnest(%(partitions)s::bigint[], %(gates)s::smallint[], %(amounts)s::numeric[], %(rates)s::numeric[],
            %(windows)s::bigint[], %(ats)s::bigint[], %(levels)s::numeric[], %(times)s::text[], %(grants)s::text[],
            %(costs)s::numeric[], %(turns)s::bigint[])
    AS w (partition_id, gate, amount, rate, window_us, at_us, level, times, costs, cost, turn)
ON CONFLICT (query_id, partition_id, gate) DO UPDATE SET
    amount = excluded.amount, rate = excluded.rate, window_us = excluded.window_us, at_us = excluded.at_us,
    level = excluded.level, grant_times = excluded.grant_times, grant_costs = excluded.grant_costs,
    cost_total = s.cost_total + excluded.cost_total, turn = excluded.turn

-- name: park
-- The planner does not look at parked partitions (state 3).
UPDATE penstock.cursors SET state = 3
WHERE group_id = %(group)s AND partition_id = ANY(%(partitions)s::bigint[]) AND state = 0

-- name: resume
UPDATE penstock.cursors SET state = 0
WHERE group_id = %(group)s AND partition_id = ANY(%(partitions)s::bigint[]) AND state = 3
