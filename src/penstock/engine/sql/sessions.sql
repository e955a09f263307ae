-- name: open
SELECT s.key, penstock.micros(s.window_start), penstock.micros(s.window_end)
FROM penstock.state_{id} s WHERE s.key = ANY(%(keys)s::text[])
ORDER BY s.key, s.window_start

-- name: index_state
CREATE INDEX state_{id}_key ON penstock.state_{id} (key)
