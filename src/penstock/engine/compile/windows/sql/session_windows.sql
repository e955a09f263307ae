-- name: open_sessions
SELECT s.key, penstock.micros(s.window_start) AS start_us, penstock.micros(s.window_end) AS end_us
FROM penstock.state_{id} s WHERE s.key = ANY(%(keys)s::text[])
ORDER BY s.key, s.window_start

-- name: closed_sessions
-- The closed sessions that overlap with events.
SELECT DISTINCT h.key, penstock.micros(h.window_start) AS start_us, penstock.micros(h.window_end) AS end_us
FROM unnest(%(keys)s::text[], %(starts)s::bigint[], %(ends)s::bigint[]) AS e (key, starts, ends)
JOIN penstock.history_{id} h
    ON h.key = e.key AND h.window_end > penstock.moment(e.starts) AND h.window_start < penstock.moment(e.ends)
ORDER BY 1, 2, 3
