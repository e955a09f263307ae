-- name: sink
SELECT guarantee, written, retries, busy, dead_letters, running, resting, error
FROM penstock.sinks WHERE queue = %(queue)s AND sink = %(group)s
