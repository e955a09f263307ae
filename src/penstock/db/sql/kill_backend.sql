-- name: terminate
-- Waits up to a second for each process to exit. One row for each process that exists; false if it has not exited.
SELECT pg_terminate_backend(a.pid, 1000)
FROM unnest(%s::integer[], %s::timestamptz[]) AS b (pid, started_at)
JOIN pg_stat_activity a ON a.pid = b.pid AND a.backend_start = b.started_at
WHERE a.pid <> pg_backend_pid()
