-- name: send_report
INSERT INTO penstock.reports (query_id, fence, cycle, stage, task, attempt, report)
VALUES (%(query)s, %(fence)s, %(cycle)s, %(stage)s, %(task)s, %(attempt)s, %(report)s)
ON CONFLICT (query_id, fence, cycle, stage, task, attempt) DO UPDATE SET report = excluded.report

-- name: load_plan
SELECT plan FROM penstock.cycles WHERE query_id = %(query)s AND cycle = %(cycle)s AND fence = %(fence)s

-- name: load_reports
SELECT stage, task, report FROM penstock.reports
WHERE query_id = %(query)s AND fence = %(fence)s AND cycle = %(cycle)s

-- name: delete_reports
DELETE FROM penstock.reports WHERE query_id = %(query)s AND (fence, cycle) <= (%(fence)s, %(cycle)s)
