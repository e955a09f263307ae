-- name: load_values
SELECT w.key, w.ws, w.we, coalesce(s.a0, h.a0)::text
FROM unnest(%(keys)s::text[], %(starts)s::bigint[], %(ends)s::bigint[]) AS w (key, ws, we)
LEFT JOIN penstock.state_{id} s
    ON s.key = w.key AND s.window_start = penstock.moment(w.ws) AND s.window_end = penstock.moment(w.we)
LEFT JOIN penstock.history_{id} h
    ON h.key = w.key AND h.window_start = penstock.moment(w.ws) AND h.window_end = penstock.moment(w.we)
