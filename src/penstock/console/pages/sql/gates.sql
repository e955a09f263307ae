-- name: queries
-- All queries that have a gate.
SELECT q.name FROM penstock.queries q
WHERE EXISTS (SELECT FROM penstock.gate_rules u WHERE u.query_id = q.id) ORDER BY q.name
