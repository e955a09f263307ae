-- name: lock_partitions
-- In id order everywhere, so that two pushes can never wait for each other.
SELECT id FROM penstock.partitions WHERE id = ANY(%(partitions)s::bigint[]) ORDER BY id FOR NO KEY UPDATE

-- name: append
SELECT * FROM penstock.append_{suffix}(
    %(partitions)s::bigint[], %(counts)s::integer[], %(after)s::integer[], %(starts)s::integer[],
    %(sizes)s::integer[], %(bodies)b,
    %(skew)s, %(flush)s, %(epoch)s::integer, _at => %(at)s::timestamptz)

-- name: append_more
-- The same, with ids to remember or groups to deliver to.
SELECT * FROM penstock.append_{suffix}(
    %(partitions)s::bigint[], %(counts)s::integer[], %(after)s::integer[], %(starts)s::integer[],
    %(sizes)s::integer[], %(bodies)b,
    %(skew)s, %(flush)s, %(epoch)s::integer,
    %(targets)s::integer[], %(hashes)s::uuid[], %(slots)s::integer[], %(places)s::bigint[],
    %(id_segments)s::integer[], %(at)s::timestamptz)

-- name: was_flushed
-- After a lost connection: did the flush get through? The partitions are locked, so it is over either way.
SELECT c.partition_id, c.end_offset, c.event_count
FROM unnest(%(partitions)s::bigint[]) AS w (partition_id)
CROSS JOIN LATERAL (
    SELECT * FROM {chunks} c WHERE c.partition_id = w.partition_id ORDER BY c.end_offset DESC LIMIT 100000
) c
WHERE c.flush_id = %(flush)s
ORDER BY c.partition_id, c.end_offset

-- name: seen_ids
SELECT i.hash, i.event_offset FROM {ids} i WHERE i.hash = ANY(%(hashes)s::uuid[])

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

-- name: claim_requests
-- The same for several at once.
INSERT INTO penstock.requests (idempotency_key, fingerprint, result, created_at)
SELECT w.key, w.fingerprint, '', clock_timestamp() + %(skew)s
FROM unnest(%(keys)s::text[], %(fingerprints)s::bytea[]) AS w (key, fingerprint)
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING idempotency_key

-- name: read_request
SELECT fingerprint, result FROM penstock.requests WHERE idempotency_key = %(key)s

-- name: store_request
UPDATE penstock.requests SET result = %(result)s WHERE idempotency_key = %(key)s

-- name: store_requests
UPDATE penstock.requests r SET result = w.result
FROM unnest(%(keys)s::text[], %(results)s::bytea[]) AS w (key, result)
WHERE r.idempotency_key = w.key
