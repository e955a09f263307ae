-- name: sink
SELECT guarantee, written, retries, busy, dead_letters, running AS is_running, resting AS is_resting, error
FROM penstock.sinks WHERE queue = %(queue)s AND sink = %(group)s
