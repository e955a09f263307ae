-- name: complete
-- Completes events up to an offset under a lease that has not expired: the common case, in one statement. It returns
-- the position before, and whether the ack was written.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() + %(skew)s AS now),
current AS MATERIALIZED (
    SELECT w.ordinal, w.lease_id AS claimed, w.upto, p.ctid AS before, p.*
    FROM unnest(%(groups)s::integer[], %(partitions)s::bigint[], %(leases)s::uuid[], %(upto)s::bigint[])
        WITH ORDINALITY AS w (group_id, partition_id, lease_id, upto, ordinal)
    CROSS JOIN LATERAL (
        SELECT p.ctid, p.* FROM penstock.positions p
        WHERE p.group_id = w.group_id AND p.partition_id = w.partition_id ORDER BY p.version DESC LIMIT 1
    ) p
),
held AS MATERIALIZED (
    -- A position that has moved since the statement began cannot be locked. The caller tries again.
    SELECT s.* FROM current s JOIN penstock.positions p ON p.ctid = s.before CROSS JOIN clock c
    WHERE s.lease_id = s.claimed AND s.available_at > c.now AND s.upto > s.next_offset AND s.upto <= s.lease_end
      AND s.skipped = '{}' AND s.attempts = 0
    FOR NO KEY UPDATE OF p
),
written AS (
    INSERT INTO penstock.positions
        (group_id, partition_id, version, next_offset, lease_id, lease_end, available_at, moved_at, suspect_end,
         redelivered_end)
    SELECT s.group_id, s.partition_id, s.version + 1, s.upto,
           CASE WHEN s.upto < s.lease_end THEN s.lease_id END, s.lease_end,
           CASE WHEN s.upto < s.lease_end THEN s.available_at ELSE 'epoch' END, c.now, s.suspect_end,
           s.redelivered_end
    FROM held s CROSS JOIN clock c
    ON CONFLICT DO NOTHING
    RETURNING group_id, partition_id, version
),
replaced AS (
    -- By ctid: by key, the planner may choose to scan the dead versions of all partitions.
    DELETE FROM penstock.positions p
    USING written w JOIN current s ON s.group_id = w.group_id AND s.partition_id = w.partition_id
    WHERE p.ctid = s.before
)
SELECT s.ordinal, s.version, s.next_offset, s.lease_id, s.lease_end, s.available_at,
       w.version IS NOT NULL AS written, (SELECT now FROM clock)
FROM current s
LEFT JOIN written w ON w.group_id = s.group_id AND w.partition_id = s.partition_id
