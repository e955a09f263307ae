-- name: last_number
-- The last number that was drawn, by whichever transaction, and the floor.
SELECT s.last_value, f.floor FROM penstock.inbox_sequence s, penstock.inbox_state f

-- name: committing
-- The queues for which a transaction may draw a number, or has drawn one and is not visible yet, by the last bits of their
-- ids; and the bounds of the numbers, by their last bits. penstock.order_inbox() takes these locks.
SELECT DISTINCT ((l.classid::bigint & 16777215) << 32 | l.objid::bigint) >> 36,
       ((l.classid::bigint & 15) << 32) | l.objid::bigint
FROM pg_locks l
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.classid::bigint >> 24 = 80 AND l.mode = 'ShareLock'
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())

-- name: waiting
-- The first rows up to the last number, and up to the bounds of queues with commits that are not visible yet. No more rows
-- than fit into max_bytes, but at least one. The queue of a row has no name if it was deleted.
SELECT w.sequence, w.inbox_id, w.queue_id, q.name, i.data, i.keys, i.ids, i.times, i.headers
FROM (
    SELECT o.sequence, o.inbox_id, o.queue_id,
           sum(o.bytes) OVER (ORDER BY o.sequence ROWS UNBOUNDED PRECEDING) - o.bytes AS bytes_before
    FROM (
        SELECT * FROM penstock.inbox_order o
        WHERE o.sequence > (SELECT s.floor FROM penstock.inbox_state s) AND o.sequence <= %(last)s
          AND o.queue_id <> ALL(%(skipped)s::integer[])
          AND NOT EXISTS (
              SELECT FROM unnest(%(queues)s::bigint[], %(bounds)s::bigint[]) AS c (queue, bound)
              WHERE c.queue = (o.queue_id & 1048575) AND o.sequence > c.bound)
        ORDER BY o.sequence LIMIT %(limit)s
    ) o
) w
JOIN penstock.inbox i ON i.id = w.inbox_id
LEFT JOIN penstock.queues q ON q.id = w.queue_id
WHERE w.bytes_before < %(max_bytes)s
ORDER BY w.sequence

-- name: delete
-- Returns the number of deleted rows. It is too small if another process has moved some of them.
WITH ordered AS (
    DELETE FROM penstock.inbox_order WHERE sequence = ANY(%(sequences)s::bigint[]) RETURNING sequence
), stored AS (
    DELETE FROM penstock.inbox WHERE id = ANY(%(ids)s::bigint[]) RETURNING id
)
SELECT least((SELECT count(*) FROM ordered), (SELECT count(*) FROM stored))

-- name: has_rows
SELECT EXISTS (
    SELECT FROM penstock.inbox_order o WHERE o.sequence > (SELECT s.floor FROM penstock.inbox_state s))

-- name: has_rows_up_to
SELECT EXISTS (
    SELECT FROM penstock.inbox_order o
    WHERE o.sequence > (SELECT s.floor FROM penstock.inbox_state s) AND o.sequence <= %(last)s)

-- name: raise_floor
UPDATE penstock.inbox_state SET floor = %(last)s WHERE floor < %(last)s

-- name: full_queues
SELECT q.name FROM penstock.full_queues f JOIN penstock.queues q ON q.id = f.queue_id

-- name: mark_full
INSERT INTO penstock.full_queues (queue_id, reason, measured_at)
SELECT q.id, %(reason)s, clock_timestamp() FROM penstock.queues q WHERE q.id = %(queue)s
ON CONFLICT (queue_id) DO UPDATE SET reason = excluded.reason, measured_at = excluded.measured_at

-- name: mark_open
DELETE FROM penstock.full_queues WHERE queue_id = %(queue)s
