-- name: lock_partitions
-- In id order everywhere, so that two pushes can never wait for each other.
SELECT id FROM penstock.partitions WHERE id = ANY(%(partitions)s) ORDER BY id FOR NO KEY UPDATE

-- name: append
WITH input AS MATERIALIZED (
    SELECT partition_id, ordinal, event_count, target_group, body,
           sum(event_count) OVER (PARTITION BY partition_id ORDER BY ordinal) AS events_to_here
    FROM unnest(%(partitions)s::bigint[], %(counts)s::integer[], %(targets)s::integer[], %(bodies)s::bytea[])
        WITH ORDINALITY AS i (partition_id, event_count, target_group, body, ordinal)
),
heads AS MATERIALIZED (
    SELECT p.id AS partition_id, head.end_offset, head.appended_at
    FROM (SELECT DISTINCT partition_id FROM input) i
    JOIN penstock.partitions p ON p.id = i.partition_id
    CROSS JOIN LATERAL (
        SELECT end_offset, appended_at FROM (
            (SELECT c.end_offset, c.appended_at FROM {chunks} c
             WHERE c.partition_id = p.id ORDER BY c.end_offset DESC LIMIT 1)
            UNION ALL
            SELECT p.sealed_end, p.sealed_at
        ) newest LIMIT 1
    ) head
    WHERE (
        SELECT CASE WHEN q.segment = %(segment)s AND q.epoch = %(epoch)s THEN true
                    ELSE penstock.refuse('the queue has moved on') END
        FROM penstock.queues q WHERE q.id = %(queue)s
    )
),
unparked AS (
    UPDATE penstock.cursors SET state = 0 WHERE partition_id = ANY(%(partitions)s) AND state = 1
)
INSERT INTO {chunks} (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
SELECT i.partition_id, h.end_offset + i.events_to_here, i.event_count,
       greatest(h.appended_at, clock_timestamp() + %(skew)s), i.target_group, %(flush)s, i.body
FROM input i JOIN heads h ON h.partition_id = i.partition_id
RETURNING partition_id, end_offset, appended_at

-- name: append_with_ids
-- The same, and the ids of the events go where the next push looks for them.
WITH input AS MATERIALIZED (
    SELECT partition_id, ordinal, event_count, target_group, body,
           sum(event_count) OVER (PARTITION BY partition_id ORDER BY ordinal) AS events_to_here
    FROM unnest(%(partitions)s::bigint[], %(counts)s::integer[], %(targets)s::integer[], %(bodies)s::bytea[])
        WITH ORDINALITY AS i (partition_id, event_count, target_group, body, ordinal)
),
heads AS MATERIALIZED (
    SELECT p.id AS partition_id, head.end_offset, head.appended_at
    FROM (SELECT DISTINCT partition_id FROM input) i
    JOIN penstock.partitions p ON p.id = i.partition_id
    CROSS JOIN LATERAL (
        SELECT end_offset, appended_at FROM (
            (SELECT c.end_offset, c.appended_at FROM {chunks} c
             WHERE c.partition_id = p.id ORDER BY c.end_offset DESC LIMIT 1)
            UNION ALL
            SELECT p.sealed_end, p.sealed_at
        ) newest LIMIT 1
    ) head
    WHERE (
        SELECT CASE WHEN q.segment = %(segment)s AND q.epoch = %(epoch)s THEN true
                    ELSE penstock.refuse('the queue has moved on') END
        FROM penstock.queues q WHERE q.id = %(queue)s
    )
),
unparked AS (
    UPDATE penstock.cursors SET state = 0 WHERE partition_id = ANY(%(partitions)s) AND state = 1
),
remembered AS (
    INSERT INTO {ids} (hash, partition_id, event_offset)
    SELECT n.hash, n.partition_id, h.end_offset + n.place
    FROM unnest(%(hashes)s::uuid[], %(hash_partitions)s::bigint[], %(places)s::bigint[])
        AS n (hash, partition_id, place)
    JOIN heads h ON h.partition_id = n.partition_id
)
INSERT INTO {chunks} (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
SELECT i.partition_id, h.end_offset + i.events_to_here, i.event_count,
       greatest(h.appended_at, clock_timestamp() + %(skew)s), i.target_group, %(flush)s, i.body
FROM input i JOIN heads h ON h.partition_id = i.partition_id
RETURNING partition_id, end_offset, appended_at

-- name: was_flushed
-- After a lost connection: did the flush get through? The partitions are locked, so it is over either way.
SELECT c.partition_id, c.end_offset, c.appended_at
FROM unnest(%(partitions)s::bigint[]) AS w (partition_id)
CROSS JOIN LATERAL (
    SELECT * FROM {chunks} c WHERE c.partition_id = w.partition_id ORDER BY c.end_offset DESC LIMIT 1000
) c
WHERE c.flush_id = %(flush)s
ORDER BY c.partition_id, c.end_offset

-- name: seen_ids
SELECT i.hash, i.partition_id, i.event_offset
FROM {ids} i WHERE i.hash = ANY(%(hashes)s::uuid[])

-- name: still_in_window
-- Of ids seen before, the ones whose event is younger than the window, or no longer there to ask.
SELECT w.ordinal FROM unnest(%(partitions)s::bigint[], %(offsets)s::bigint[])
    WITH ORDINALITY AS w (partition_id, event_offset, ordinal)
LEFT JOIN LATERAL (
    SELECT c.appended_at FROM {chunks} c
    WHERE c.partition_id = w.partition_id AND c.end_offset > w.event_offset ORDER BY c.end_offset LIMIT 1
) c ON true
WHERE c.appended_at IS NULL
   OR c.appended_at > clock_timestamp() + %(skew)s - make_interval(secs => %(window)s)

-- name: claim_request
INSERT INTO penstock.requests (idempotency_key, fingerprint, result, created_at)
VALUES (%(key)s, %(fingerprint)s, '', clock_timestamp() + %(skew)s)
ON CONFLICT (idempotency_key) DO NOTHING

-- name: read_request
SELECT fingerprint, result FROM penstock.requests WHERE idempotency_key = %(key)s

-- name: store_request
UPDATE penstock.requests SET result = %(result)s WHERE idempotency_key = %(key)s
