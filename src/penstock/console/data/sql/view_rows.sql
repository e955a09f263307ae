-- The rows of a materialized view, with its hidden key as the last order.

-- name: begin
-- The last commit and the rows are those of one moment.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY

-- name: configure_planner
SELECT set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true),
       set_config('statement_timeout', '3s', true)

-- name: last_commit
SELECT c.committed_at FROM penstock.cycles c
WHERE c.query_id = %(query)s AND c.committed_at IS NOT NULL ORDER BY c.cycle DESC LIMIT 1

-- name: rows
SELECT t.updated_at{values} FROM penstock.view_{id} t WHERE {matches}
ORDER BY {order} LIMIT %(limit)s OFFSET %(offset)s

-- name: count
SELECT count(*) FROM (SELECT FROM penstock.view_{id} t WHERE {matches} LIMIT %(most)s) c
