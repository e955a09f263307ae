-- name: delete_expired_traces
DELETE FROM penstock.traces WHERE created_at < clock_timestamp() - interval '30 days'
