-- name: begin_flush
WITH next AS (
    UPDATE penstock.queries SET cycle = cycle + 1 WHERE id = %(query)s AND fence = %(fence)s RETURNING cycle
)
INSERT INTO penstock.cycles (query_id, cycle, fence, plan, planned)
SELECT %(query)s, cycle, %(fence)s, %(plan)s, 0 FROM next RETURNING cycle

-- name: delete_plan
DELETE FROM penstock.cycles
WHERE query_id = %(query)s AND cycle = %(cycle)s AND fence = %(fence)s AND committed_at IS NULL
RETURNING cycle

-- name: load_poison_search
SELECT suspicion FROM penstock.queries WHERE id = %(query)s
