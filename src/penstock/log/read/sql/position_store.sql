-- name: lock_cursors
-- Always in this order, and before any lock on a partition.
SELECT c.group_id, c.partition_id FROM penstock.cursors c
JOIN unnest(%(groups)s::integer[], %(partitions)s::bigint[]) AS w (group_id, partition_id)
    ON w.group_id = c.group_id AND w.partition_id = c.partition_id
ORDER BY c.group_id, c.partition_id
FOR NO KEY UPDATE OF c

-- name: share_queues
-- Before any lock on a cursor: a dead letter references its queue, and a seek locks the queue first, too.
SELECT id FROM penstock.queues WHERE id = ANY(%(queues)s) ORDER BY id FOR KEY SHARE

-- name: lock_positions
-- The current positions, locked until the transaction ends. A position that moved while the statement waited for its
-- lock is missing.
SELECT clock_timestamp() + %(skew)s, p.attempts, p.group_id, p.partition_id, p.version, p.next_offset, p.lease_id,
       p.lease_end, p.available_at, p.expiries, p.suspect_end, p.redelivered_end, p.failures, p.skipped
FROM unnest(%(groups)s::integer[], %(partitions)s::bigint[]) AS w (group_id, partition_id)
CROSS JOIN LATERAL (
    SELECT * FROM penstock.positions p
    WHERE p.group_id = w.group_id AND p.partition_id = w.partition_id ORDER BY p.version DESC LIMIT 1
    FOR NO KEY UPDATE
) p

-- name: write_positions
WITH written AS (
    INSERT INTO penstock.positions
        (group_id, partition_id, version, next_offset, lease_id, lease_end, available_at, attempts, failures, skipped,
         expiries, suspect_end, redelivered_end, moved_at)
    SELECT group_id, partition_id, version + 1, next_offset, lease_id, lease_end, available_at, attempts,
           failures::bigint[], skipped::bigint[], expiries, suspect_end, redelivered_end, clock_timestamp() + %(skew)s
    FROM unnest(%(groups)s::integer[], %(partitions)s::bigint[], %(versions)s::bigint[], %(nexts)s::bigint[],
                %(leases)s::uuid[], %(ends)s::bigint[], %(availables)s::timestamptz[], %(attempts)s::integer[],
                %(failures)s::text[], %(skipped)s::text[], %(expiries)s::integer[], %(suspects)s::bigint[],
                %(redelivered)s::bigint[])
        AS w (group_id, partition_id, version, next_offset, lease_id, lease_end, available_at, attempts, failures,
              skipped, expiries, suspect_end, redelivered_end)
    ON CONFLICT DO NOTHING
    RETURNING group_id, partition_id, version
),
replaced AS (
    DELETE FROM penstock.positions p USING written w
    CROSS JOIN LATERAL (
        SELECT o.ctid FROM penstock.positions o
        WHERE o.group_id = w.group_id AND o.partition_id = w.partition_id AND o.version < w.version
        ORDER BY o.version DESC LIMIT 1
    ) o
    WHERE p.ctid = o.ctid
)
SELECT group_id, partition_id FROM written
