-- name: begin
-- If the query is still this driver's, a number for the ledger and the time that counts, which never goes back.
WITH mine AS MATERIALIZED (
    SELECT cycle, is_paused, gate_time FROM penstock.queries
    WHERE id = %(query)s AND fence = %(fence)s FOR NO KEY UPDATE
)
SELECT cycle + 1, is_paused, greatest(gate_time, clock_timestamp()) FROM mine

-- name: states
SELECT partition_id, gate, at_us, level, grant_times, grant_costs, turn
FROM penstock.gate_states WHERE query_id = %(query)s AND partition_id = ANY(%(partitions)s::bigint[])

-- name: lanes
SELECT partition_id, passed, allowed, deficit, denied_since IS NOT NULL, next_at IS NOT NULL, wakes_at IS NOT NULL,
       coalesce((SELECT jsonb_object_agg(s.gate, s.cost_total) FROM penstock.gate_states s
                 WHERE s.query_id = l.query_id AND s.partition_id = l.partition_id), '{}')
FROM penstock.gate_lanes l
WHERE query_id = %(query)s AND partition_id = ANY(%(partitions)s::bigint[])

-- name: limits
SELECT key, gate, amount, rate, window_us, weight, paused, hold_until
FROM penstock.gate_limits WHERE query = %(name)s AND key = ANY(%(keys)s)

-- name: in_flight
-- How many events of these lanes the group has yet to acknowledge.
SELECT w.partition_id,
       coalesce((SELECT k.end_offset FROM {chunks} k
                 WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end)
           - p.next_offset - cardinality(p.skipped)
FROM unnest(%(partitions)s::bigint[], %(keys)s::text[]) AS w (partition_id, key)
JOIN penstock.partitions t ON t.queue_id = %(sink)s AND t.epoch = %(epoch)s AND t.name = w.key
CROSS JOIN LATERAL (
    SELECT p.next_offset, p.skipped FROM penstock.positions p
    WHERE p.group_id = %(group)s AND p.partition_id = t.id ORDER BY p.version DESC LIMIT 1
) p

-- name: store_lanes
INSERT INTO penstock.gate_lanes AS l (query_id, partition_id, key, passed, allowed, denied_since, next_at, wakes_at,
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

-- name: store_states
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

-- name: lay_down
-- Lanes that wait for long are not looked at meanwhile.
UPDATE penstock.cursors SET state = 3
WHERE group_id = %(group)s AND partition_id = ANY(%(partitions)s::bigint[]) AND state = 0

-- name: take_up
UPDATE penstock.cursors SET state = 0
WHERE group_id = %(group)s AND partition_id = ANY(%(partitions)s::bigint[]) AND state = 3

-- name: take_up_all
-- A driver that begins has nothing at hand, so it looks itself at every lane that waits until then, or until now.
WITH woken AS (
    UPDATE penstock.gate_lanes SET wakes_at = NULL
    WHERE query_id = %(query)s AND wakes_at <= greatest(clock_timestamp(), penstock.moment(%(until)s))
)
UPDATE penstock.cursors c SET state = 0
WHERE c.group_id = %(group)s AND c.state = 3 AND NOT EXISTS (
    SELECT FROM penstock.gate_lanes l
    WHERE l.query_id = %(query)s AND l.partition_id = c.partition_id
      AND l.wakes_at > greatest(clock_timestamp(), penstock.moment(%(until)s))
)

-- name: hurry
-- What lanes wait for may be free before its time: whoever plans takes them up, but those that are paused.
UPDATE penstock.gate_lanes SET wakes_at = %(now)s
WHERE query_id = %(query)s AND wakes_at > %(now)s AND wakes_at < penstock.moment(%(never)s)

-- name: ledger
-- A release, in the ledger and in the totals; the cycle that brought its events to hand has a row of its own.
WITH turned AS (
    UPDATE penstock.queries SET cycle = %(cycle)s, gate_time = %(now)s WHERE id = %(query)s
), done AS (
    INSERT INTO penstock.cycles (query_id, cycle, fence, plan, planned, planned_at, started_at, committed_at, events_in,
                                 events_out, windows, late, dead, took)
    VALUES (%(query)s, %(cycle)s, %(fence)s, '', 0, %(now)s, %(now)s, clock_timestamp(), %(events_in)s,
            %(events_out)s, 0, 0, %(dead)s, %(took)s)
)
INSERT INTO penstock.query_totals AS t (query_id, events_in, events_out, dead)
VALUES (%(query)s, %(events_in)s, %(events_out)s, %(dead)s)
ON CONFLICT (query_id) DO UPDATE SET events_in = t.events_in + excluded.events_in,
    events_out = t.events_out + excluded.events_out, dead = t.dead + excluded.dead

-- name: lock_query
SELECT id FROM penstock.queries WHERE id = %(query)s AND fence = %(fence)s FOR UPDATE

-- name: waking
-- The lanes whose time has come while nobody looked at them. A clock that goes on while it is asked would have every lane
-- that waits looked at.
SELECT partition_id FROM penstock.gate_lanes
WHERE query_id = %(query)s AND wakes_at <= statement_timestamp() ORDER BY wakes_at LIMIT 10000

-- name: wake
UPDATE penstock.gate_lanes SET wakes_at = NULL
WHERE query_id = %(query)s AND partition_id = ANY(%(partitions)s::bigint[])

-- name: heads
-- The lanes that have something unread, with how much of each its driver wants at hand, and what it has put back.
SELECT c.partition_id, t.name, t.is_lane, t.sealed_end, p.next_offset, h.end_offset, NULL, NULL, l.wants,
       coalesce(l.put_back, 0)
FROM penstock.cursors c
JOIN penstock.partitions t ON t.id = c.partition_id
CROSS JOIN LATERAL (
    SELECT p.next_offset FROM penstock.positions p
    WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id ORDER BY p.version DESC LIMIT 1
) p
CROSS JOIN LATERAL (
    SELECT coalesce((SELECT k.end_offset FROM {chunks} k
                     WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end) AS end_offset
) h
LEFT JOIN penstock.gate_lanes l ON l.query_id = %(query)s AND l.partition_id = c.partition_id
WHERE c.group_id = %(group)s AND c.state = 0 AND h.end_offset > p.next_offset
ORDER BY c.partition_id

-- name: is_taken
-- Whether what a cycle read is at hand.
SELECT committed_at IS NOT NULL FROM penstock.cycles WHERE query_id = %(query)s AND cycle = %(cycle)s

-- name: forget_rules
DELETE FROM penstock.gate_rules WHERE query_id = %(query)s AND gate > %(gates)s

-- name: store_rule
-- A row, if the gate is another than it was.
INSERT INTO penstock.gate_rules AS u (query_id, gate, kind, amount, rate, window_us, group_name, shared)
VALUES (%(query)s, %(gate)s, %(kind)s, %(amount)s, %(rate)s, %(window)s, %(group)s, %(shared)s)
ON CONFLICT (query_id, gate) DO UPDATE SET kind = excluded.kind, amount = excluded.amount, rate = excluded.rate,
    window_us = excluded.window_us, group_name = excluded.group_name, shared = excluded.shared
WHERE (u.kind, u.amount, u.rate, u.window_us, u.group_name, u.shared)
    IS DISTINCT FROM (excluded.kind, excluded.amount, excluded.rate, excluded.window_us, excluded.group_name, excluded.shared)
RETURNING u.gate

-- name: settle
SELECT penstock.settle_gates(ARRAY[%(name)s], ARRAY[''], NULL)

-- name: put_back
-- What cycles up to this one have brought to hand of these lanes is there no longer.
UPDATE penstock.gate_lanes SET put_back = greatest(put_back, %(cycle)s)
WHERE query_id = %(query)s AND partition_id = ANY(%(partitions)s::bigint[])

-- name: positions
-- Where the group stands in these lanes, and what of them was put back.
SELECT w.partition_id, p.next_offset, coalesce(l.put_back, 0)
FROM unnest(%(partitions)s::bigint[]) AS w (partition_id)
CROSS JOIN LATERAL (
    SELECT p.next_offset FROM penstock.positions p
    WHERE p.group_id = %(group)s AND p.partition_id = w.partition_id ORDER BY p.version DESC LIMIT 1
) p
LEFT JOIN penstock.gate_lanes l ON l.query_id = %(query)s AND l.partition_id = w.partition_id
