-- The table in which versions up to 0.1 stored the rows of a join.

-- name: exists
SELECT to_regclass('penstock.waiting_{id}') IS NOT NULL

-- name: lock_query
-- No row if another driver holds the query.
SELECT closed_us FROM penstock.queries WHERE id = %(query)s AND fence = %(fence)s FOR UPDATE

-- name: rows
-- The rows that may find a match or are to be emitted without one, in the order in which they came.
SELECT w.side, nullif(w.key, '') COLLATE "C", w.time_us, w.partition_id, w.event_offset, w.event_key, w.line, w.is_matched
FROM penstock.waiting_{id} w
WHERE %(closed)s::bigint IS NULL
   OR w.time_us >= %(closed)s::bigint - CASE w.side WHEN 0 THEN %(after)s ELSE %(before)s END::bigint
   OR (%(is_outer)s AND w.side = 0 AND NOT w.is_matched)
ORDER BY w.id

-- name: drop
DROP TABLE penstock.waiting_{id}
