-- name: lease
-- Scans the group's partitions in a span of ids, takes the first ones with unread events and without a lease, and
-- writes the lease as the next version of their positions. One statement serves several pops.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() + %(skew)s AS now, q.lease_seconds, q.expiry_limit,
           -- A lease need not survive a crash of the database. Afterwards its ack is refused.
           set_config('synchronous_commit', 'off', true),
           CASE WHEN q.segment = %(segment)s AND q.epoch = %(epoch)s THEN true
                ELSE penstock.refuse('the queue has moved on') END AS current
    FROM penstock.queues q WHERE q.id = %(queue)s
),
ready AS MATERIALIZED (
    SELECT c.partition_id, t.name, t.is_key_partition, p.ctid AS before, p.version, p.next_offset, p.attempts, p.failures, p.skipped,
           h.head, t.sealed_end, p.lease_id, p.lease_end, p.expiries, p.suspect_end,
           p.redelivered_end
    FROM penstock.cursors c
    CROSS JOIN LATERAL (
        SELECT p.ctid, p.* FROM penstock.positions p
        WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id
        ORDER BY p.version DESC LIMIT 1
    ) p
    JOIN penstock.partitions t ON t.id = c.partition_id
    CROSS JOIN LATERAL (
        SELECT coalesce(
            (SELECT k.end_offset FROM {chunks} k
             WHERE k.partition_id = c.partition_id ORDER BY k.end_offset DESC LIMIT 1),
            t.sealed_end) AS head
        OFFSET 0
    ) h
    WHERE c.group_id = %(group)s AND c.state = 0
      AND c.partition_id > %(after)s AND c.partition_id <= %(upto)s
      AND p.available_at <= (SELECT now FROM clock)
      AND h.head > p.next_offset
      {quiet_condition}
    ORDER BY c.partition_id
    LIMIT %(partitions)s * cardinality(%(leases)s::uuid[])
    FOR NO KEY UPDATE OF c SKIP LOCKED
),
held AS MATERIALIZED (
    -- A position that has moved since the statement began cannot be locked, and is not leased.
    SELECT r.* FROM ready r JOIN penstock.positions p ON p.ctid = r.before
    FOR NO KEY UPDATE OF p SKIP LOCKED
),
readable AS (
    SELECT r.*, s.segment, b.start, e.expired, e.suspected,
           -- If the queue has an expiry limit, events of an expired lease are delivered one at a time.
           CASE WHEN e.suspected > b.start THEN b.start + 1 ELSE coalesce(s.end_offset, r.head) END AS readable_end,
           (row_number() OVER (ORDER BY r.partition_id) - 1) / %(partitions)s AS pop_number
    FROM held r CROSS JOIN clock c
    LEFT JOIN LATERAL (
        SELECT l.segment, l.first_offset, l.end_offset FROM penstock.segment_partitions l
        WHERE l.partition_id = r.partition_id AND l.end_offset > r.next_offset
        ORDER BY l.end_offset LIMIT 1
    ) s ON true
    -- Retention may have dropped the events at next_offset.
    CROSS JOIN LATERAL (SELECT greatest(r.next_offset, coalesce(s.first_offset, r.sealed_end)) AS start) b
    CROSS JOIN LATERAL (
        SELECT r.expiries + (r.lease_id IS NOT NULL)::integer AS expired,
               CASE WHEN c.expiry_limit IS NULL THEN 0
                    WHEN r.lease_id IS NULL THEN r.suspect_end
                    ELSE greatest(r.suspect_end, r.lease_end) END AS suspected
    ) e
),
sized AS (
    SELECT r.*, sum(r.readable_end - r.start) OVER (PARTITION BY r.pop_number ORDER BY r.partition_id)
               - (r.readable_end - r.start) AS taken_before
    FROM readable r
),
leased AS (
    INSERT INTO penstock.positions
        (group_id, partition_id, version, next_offset, lease_id, lease_end, available_at, attempts, failures, skipped,
         moved_at, expiries, suspect_end, redelivered_end)
    SELECT %(group)s, z.partition_id, z.version + 1, z.start, (%(leases)s::uuid[])[z.pop_number + 1],
           least(z.readable_end, z.start + %(batch)s - z.taken_before)::bigint,
           c.now + make_interval(secs => coalesce(%(lease_seconds)s, c.lease_seconds)), z.attempts, z.failures, z.skipped,
           c.now, z.expired, z.suspected, greatest(z.redelivered_end, z.lease_end)
    FROM sized z CROSS JOIN clock c
    WHERE z.taken_before < %(batch)s
    ON CONFLICT DO NOTHING
    RETURNING partition_id, version, next_offset, lease_id, lease_end, available_at, attempts, failures, skipped
),
replaced AS (
    -- By ctid: by key, the planner may choose to scan the dead versions of all partitions.
    DELETE FROM penstock.positions p USING leased l JOIN sized z ON z.partition_id = l.partition_id
    WHERE p.ctid = z.before
)
SELECT l.lease_id, l.partition_id, z.name, z.is_key_partition, l.next_offset, l.lease_end, l.available_at, l.attempts,
       l.failures, l.skipped, coalesce(z.segment, %(segment)s::integer), z.expired,
       -- The limit of expiries is reached, and the last lease was on this event alone.
       coalesce(z.expired >= c.expiry_limit AND z.lease_id IS NOT NULL AND z.lease_end - z.next_offset = 1, false)
FROM leased l JOIN sized z ON z.partition_id = l.partition_id CROSS JOIN clock c

-- name: quiet_condition
-- A condition of the lease statement for queues with quiet_seconds: nothing was appended recently.
AND coalesce(
          (SELECT k.appended_at FROM {chunks} k
           WHERE k.partition_id = c.partition_id ORDER BY k.end_offset DESC LIMIT 1),
          t.sealed_at) <= (SELECT now FROM clock) - make_interval(secs => %(quiet)s)

-- name: next_available
-- The time until the earliest lease, retry or delay of the group ends. A waiting pop sleeps for it.
SELECT min(p.available_at) - (clock_timestamp() + %(skew)s)
FROM penstock.cursors c
CROSS JOIN LATERAL (
    SELECT p.available_at FROM penstock.positions p
    WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id ORDER BY p.version DESC LIMIT 1
) p
WHERE c.group_id = %(group)s AND c.state = 0 AND p.available_at > clock_timestamp() + %(skew)s

-- name: leased_partitions
-- The partitions of leases, among those that the group reads now.
SELECT p.partition_id FROM penstock.cursors c
CROSS JOIN LATERAL (
    SELECT p.partition_id, p.lease_id FROM penstock.positions p
    WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id ORDER BY p.version DESC LIMIT 1
) p
WHERE c.group_id = %(group)s AND c.state = 0 AND p.lease_id = ANY(%(leases)s::uuid[])
