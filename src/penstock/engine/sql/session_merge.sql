-- name: open
SELECT s.key, penstock.micros(s.window_start), penstock.micros(s.window_end)
FROM penstock.state_{id} s WHERE s.key = ANY(%(keys)s::text[])
ORDER BY s.key, s.window_start

-- name: index_state
CREATE INDEX state_{id}_key ON penstock.state_{id} (key)

-- name: closed
-- The closed spans that events touch.
SELECT DISTINCT h.key, penstock.micros(h.window_start), penstock.micros(h.window_end)
FROM unnest(%(keys)s::text[], %(starts)s::bigint[], %(ends)s::bigint[]) AS e (key, starts, ends)
JOIN penstock.history_{id} h
    ON h.key = e.key AND h.window_end > penstock.moment(e.starts) AND h.window_start < penstock.moment(e.ends)
ORDER BY 1, 2, 3

-- name: index_history_keys
CREATE INDEX IF NOT EXISTS history_{id}_key ON penstock.history_{id} (key, window_end)
