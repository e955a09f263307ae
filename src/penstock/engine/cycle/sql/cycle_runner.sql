-- name: delete_plan
DELETE FROM penstock.cycles
WHERE query_id = %(query)s AND cycle = %(cycle)s AND fence = %(fence)s AND committed_at IS NULL
RETURNING cycle

-- name: load_poison_search
SELECT poison_search FROM penstock.queries WHERE id = %(query)s
