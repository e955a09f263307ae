-- name: add
-- Add to the counters of groups that exist, and return those. The group of a sink that has not read yet does not exist.
WITH given AS (
    SELECT g.id, n.* FROM unnest(%(queues)s::text[], %(groups)s::text[], %(guarantees)s::text[], %(written)s::bigint[],
                                 %(batches)s::bigint[], %(retries)s::bigint[], %(busy)s::bigint[],
                                 %(dead_letters)s::bigint[], %(lost)s::bigint[], %(running)s::boolean[],
                                 %(resting)s::boolean[], %(errors)s::text[])
        AS n (queue, name, guarantee, written, batches, retries, busy, dead_letters, lost, running, resting, error)
    JOIN penstock.queues q ON q.name = n.queue
    JOIN penstock.groups g ON g.queue_id = q.id AND g.name = n.name
), added AS (
    INSERT INTO penstock.sink_totals AS t (group_id, guarantee, written, batches, retries, busy, dead_letters, lost,
                                           is_running, is_resting, error)
    SELECT id, guarantee, written, batches, retries, busy, dead_letters, lost, running, resting, error
    FROM given ORDER BY id
    ON CONFLICT (group_id) DO UPDATE SET
        guarantee = excluded.guarantee, written = t.written + excluded.written, batches = t.batches + excluded.batches,
        retries = t.retries + excluded.retries, busy = t.busy + excluded.busy,
        dead_letters = t.dead_letters + excluded.dead_letters, lost = t.lost + excluded.lost,
        is_running = excluded.is_running, is_resting = excluded.is_resting, error = excluded.error,
        updated_at = clock_timestamp()
)
SELECT queue, name FROM given
