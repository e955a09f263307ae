-- name: lock_for_release
-- The number of the release in the ledger, and its time, which never goes back; no row if another driver has the query.
WITH mine AS MATERIALIZED (
    SELECT cycle, is_paused, gate_time FROM penstock.queries
    WHERE id = %(query)s AND fence = %(fence)s FOR NO KEY UPDATE
)
SELECT cycle + 1, is_paused, greatest(gate_time, clock_timestamp()) FROM mine

-- name: resume_early
-- A shared gate is free before the expected time: the planner resumes the parked partitions, except paused ones.
UPDATE penstock.gate_keys SET wakes_at = %(now)s
WHERE query_id = %(query)s AND wakes_at > %(now)s AND wakes_at < penstock.moment(%(paused_until)s)

-- name: record_release
-- The cycle that buffered the released events has a row of its own.
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
