-- name: complete
-- The common case in one statement: events up to an offset are done, under a lease that still holds.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() + %(skew)s AS now),
standing AS MATERIALIZED (
    SELECT w.ordinal, w.lease_id AS claimed, w.upto, p.ctid AS before, p.*
    FROM unnest(%(groups)s::integer[], %(partitions)s::bigint[], %(leases)s::uuid[], %(upto)s::bigint[])
        WITH ORDINALITY AS w (group_id, partition_id, lease_id, upto, ordinal)
    CROSS JOIN LATERAL (
        SELECT p.ctid, p.* FROM penstock.positions p
        WHERE p.group_id = w.group_id AND p.partition_id = w.partition_id ORDER BY p.version DESC LIMIT 1
    ) p
),
held AS MATERIALIZED (
    -- What was moved since this statement began is not there to be locked: it is looked at again.
    SELECT s.* FROM standing s JOIN penstock.positions p ON p.ctid = s.before CROSS JOIN clock c
    WHERE s.lease_id = s.claimed AND s.available_at > c.now AND s.upto > s.next_offset AND s.upto <= s.lease_end
      AND s.skipped = '{}'
    FOR NO KEY UPDATE OF p
),
written AS (
    INSERT INTO penstock.positions
        (group_id, partition_id, version, next_offset, lease_id, lease_end, available_at, attempts, moved_at, suspect_end)
    SELECT s.group_id, s.partition_id, s.version + 1, s.upto,
           CASE WHEN s.upto < s.lease_end THEN s.lease_id END, s.lease_end,
           CASE WHEN s.upto < s.lease_end THEN s.available_at ELSE 'epoch' END, 0, c.now, s.suspect_end
    FROM held s CROSS JOIN clock c
    ON CONFLICT DO NOTHING
    RETURNING group_id, partition_id, version
),
replaced AS (
    -- By address: by key, the planner may choose to walk all dead versions of all partitions.
    DELETE FROM penstock.positions p
    USING written w JOIN standing s ON s.group_id = w.group_id AND s.partition_id = w.partition_id
    WHERE p.ctid = s.before
)
SELECT s.ordinal, s.version, s.next_offset, s.lease_id, s.lease_end, s.available_at,
       w.version IS NOT NULL AS written, (SELECT now FROM clock)
FROM standing s
LEFT JOIN written w ON w.group_id = s.group_id AND w.partition_id = s.partition_id

-- name: lock_cursors
-- In one order everywhere, before any partition is locked.
SELECT c.group_id, c.partition_id FROM penstock.cursors c
JOIN unnest(%(groups)s::integer[], %(partitions)s::bigint[]) AS w (group_id, partition_id)
    ON w.group_id = c.group_id AND w.partition_id = c.partition_id
ORDER BY c.group_id, c.partition_id
FOR NO KEY UPDATE OF c

-- name: share_queues
-- Before any cursor: a dead letter refers to its queue, and whoever moves a group locks the queue first too.
SELECT id FROM penstock.queues WHERE id = ANY(%(queues)s) ORDER BY id FOR KEY SHARE

-- name: standing
-- Held still: nobody moves them before the transaction ends. One that was moved while we waited is not among them.
SELECT p.group_id, p.partition_id, p.version, p.next_offset, p.lease_id, p.lease_end, p.available_at, p.attempts,
       p.skipped, p.expiries, p.suspect_end, clock_timestamp() + %(skew)s
FROM unnest(%(groups)s::integer[], %(partitions)s::bigint[]) AS w (group_id, partition_id)
CROSS JOIN LATERAL (
    SELECT * FROM penstock.positions p
    WHERE p.group_id = w.group_id AND p.partition_id = w.partition_id ORDER BY p.version DESC LIMIT 1
    FOR NO KEY UPDATE
) p

-- name: write_positions
WITH written AS (
    INSERT INTO penstock.positions
        (group_id, partition_id, version, next_offset, lease_id, lease_end, available_at, attempts, skipped, expiries,
         suspect_end, moved_at)
    SELECT group_id, partition_id, version + 1, next_offset, lease_id, lease_end, available_at, attempts,
           skipped::bigint[], expiries, suspect_end, clock_timestamp() + %(skew)s
    FROM unnest(%(groups)s::integer[], %(partitions)s::bigint[], %(versions)s::bigint[], %(nexts)s::bigint[],
                %(leases)s::uuid[], %(ends)s::bigint[], %(availables)s::timestamptz[], %(attempts)s::integer[],
                %(skipped)s::text[], %(expiries)s::integer[], %(suspects)s::bigint[])
        AS w (group_id, partition_id, version, next_offset, lease_id, lease_end, available_at, attempts, skipped,
              expiries, suspect_end)
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
