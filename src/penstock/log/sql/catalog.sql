-- name: queue
SELECT q.id, q.name, q.partitioning, q.partition_count, q.epoch, q.segment, q.lease_seconds, q.retry_limit,
       q.retry_delay_ms, q.delay_seconds, q.retention_seconds, q.retention_drops_unread, q.dedup_window_seconds,
       q.max_depth_events, q.max_event_bytes, q.max_redrives, q.lanes_warned_at, q.created_at, q.expiry_limit,
       q.overflow, q.away_seconds, q.key_field, q.id_field, q.time_field, q.quiet_seconds,
       ARRAY(SELECT s.segment FROM penstock.segments s WHERE s.queue_id = q.id AND s.has_ids ORDER BY s.segment DESC)
FROM penstock.queues q WHERE q.name = %(name)s

-- name: queues
SELECT name FROM penstock.queues ORDER BY name

-- name: create_queue
INSERT INTO penstock.queues (name, partitioning, partition_count, lease_seconds, retry_limit, retry_delay_ms,
    delay_seconds, retention_seconds, retention_drops_unread, dedup_window_seconds, max_depth_events,
    max_event_bytes, max_redrives, expiry_limit, overflow, away_seconds, key_field, id_field, time_field,
    quiet_seconds)
VALUES (%(name)s, %(partitioning)s, %(partition_count)s, %(lease_seconds)s, %(retry_limit)s, %(retry_delay_ms)s,
    %(delay_seconds)s, %(retention_seconds)s, %(retention_drops_unread)s, %(dedup_window_seconds)s,
    %(max_depth_events)s, %(max_event_bytes)s, %(max_redrives)s, %(expiry_limit)s,
    %(overflow)s, %(away_seconds)s, %(key_field)s, %(id_field)s, %(time_field)s, %(quiet_seconds)s)
ON CONFLICT (name) DO NOTHING
RETURNING id

-- name: configure_queue
UPDATE penstock.queues SET
    lease_seconds = %(lease_seconds)s, retry_limit = %(retry_limit)s, retry_delay_ms = %(retry_delay_ms)s,
    delay_seconds = %(delay_seconds)s, retention_seconds = %(retention_seconds)s,
    retention_drops_unread = %(retention_drops_unread)s, dedup_window_seconds = %(dedup_window_seconds)s,
    max_depth_events = %(max_depth_events)s, max_event_bytes = %(max_event_bytes)s, max_redrives = %(max_redrives)s,
    expiry_limit = %(expiry_limit)s, overflow = %(overflow)s, away_seconds = %(away_seconds)s,
    key_field = %(key_field)s, id_field = %(id_field)s, time_field = %(time_field)s, quiet_seconds = %(quiet_seconds)s
WHERE id = %(queue)s

-- name: lock_queue
SELECT id FROM penstock.queues WHERE id = %(queue)s FOR UPDATE

-- name: create_segment
INSERT INTO penstock.segments (queue_id, segment, has_ids, created_at)
VALUES (%(queue)s, %(segment)s, true, clock_timestamp() + %(skew)s)

-- name: create_chunks_table
CREATE TABLE {chunks} (
    partition_id bigint NOT NULL,
    end_offset   bigint NOT NULL,
    event_count  integer NOT NULL,
    appended_at  timestamptz NOT NULL,
    target_group integer,
    flush_id     uuid NOT NULL,
    body         bytea NOT NULL,
    PRIMARY KEY (partition_id, end_offset)
)

-- name: store_compressed
-- It is compressed already: PostgreSQL need not try again.
ALTER TABLE {chunks} ALTER COLUMN body SET STORAGE EXTERNAL

-- name: create_ids_table
CREATE TABLE {ids} (
    -- Of the key and the id, so it is found whatever the partition.
    hash         uuid NOT NULL,
    event_offset bigint NOT NULL
)

-- name: create_ids_index
CREATE INDEX ids_{suffix}_hash ON {ids} (hash)

-- name: drop_chunks_table
DROP TABLE IF EXISTS {chunks}

-- name: drop_ids_table
DROP TABLE IF EXISTS {ids}

-- name: segments
SELECT segment, has_ids, created_at, sealed_at FROM penstock.segments WHERE queue_id = %(queue)s ORDER BY segment

-- name: lock_all
-- Everybody who is in the middle of something holds a cursor or a partition: after this nobody is.
SELECT c.group_id FROM penstock.cursors c JOIN penstock.groups g ON g.id = c.group_id
WHERE g.queue_id = %(queue)s ORDER BY c.group_id, c.partition_id FOR UPDATE OF c

-- name: lock_groups
SELECT id FROM penstock.groups WHERE queue_id = %(queue)s ORDER BY id FOR UPDATE

-- name: lock_lanes
SELECT id FROM penstock.partitions WHERE queue_id = %(queue)s ORDER BY id FOR UPDATE

-- name: delete_positions
DELETE FROM penstock.positions p USING penstock.groups g WHERE g.queue_id = %(queue)s AND p.group_id = g.id

-- name: delete_queue
DELETE FROM penstock.queues WHERE id = %(queue)s

-- name: partitions_named
SELECT name, id FROM penstock.partitions
WHERE queue_id = %(queue)s AND epoch = %(epoch)s AND name = ANY(%(names)s)

-- name: create_partitions
-- In name order, so that two processes that make the same lanes wait for each other and never in a circle.
INSERT INTO penstock.partitions (queue_id, epoch, name, is_lane)
SELECT %(queue)s, %(epoch)s, n, %(is_lane)s FROM unnest(%(names)s::text[]) AS n ORDER BY n
ON CONFLICT (queue_id, epoch, name) DO NOTHING
RETURNING name, id

-- name: share_groups
-- No group goes over to another epoch between this and the end of the transaction.
SELECT id FROM penstock.groups WHERE queue_id = %(queue)s ORDER BY id FOR KEY SHARE

-- name: subscribe_partitions
-- Every group of the queue gets a cursor at the start of the new partitions.
WITH made AS (
    INSERT INTO penstock.cursors (group_id, partition_id, state)
    SELECT g.id, p.id, CASE WHEN g.epoch < %(epoch)s THEN 2 ELSE 0 END
    FROM penstock.groups g CROSS JOIN unnest(%(partitions)s::bigint[]) AS p (id)
    WHERE g.queue_id = %(queue)s
    ON CONFLICT DO NOTHING
    RETURNING group_id, partition_id
)
INSERT INTO penstock.positions (group_id, partition_id, version, next_offset, lease_end, available_at)
SELECT group_id, partition_id, 0, 0, 0, 'epoch' FROM made

-- name: warn_of_lanes
UPDATE penstock.queues SET lanes_warned_at = clock_timestamp()
WHERE id = %(queue)s AND lanes_warned_at IS NULL
  AND (SELECT count(*) FROM penstock.partitions p WHERE p.queue_id = %(queue)s AND p.epoch = %(epoch)s) > %(limit)s
RETURNING id

-- name: epoch
-- Whether an epoch's partitions were lanes, and if not how many there were.
SELECT f.is_lane, CASE WHEN NOT f.is_lane THEN
       (SELECT count(*) FROM penstock.partitions p WHERE p.queue_id = %(queue)s AND p.epoch = %(epoch)s) END
FROM (SELECT p.is_lane FROM penstock.partitions p WHERE p.queue_id = %(queue)s AND p.epoch = %(epoch)s LIMIT 1) f

-- name: partitions_everywhere
SELECT id FROM penstock.partitions WHERE queue_id = %(queue)s AND name = %(name)s ORDER BY epoch

-- name: create_append
-- Append chunks to a segment: one call, one transaction, one round trip. Its statements see what was committed before
-- they begin, so the heads are read after the locks are held; their plans are kept for the session. _after counts the
-- events of the call that are in the partition up to and with the chunk, _starts and _sizes cut the chunk out of
-- _bodies, _slots and _places say which chunk's partition an id belongs to and how far after its head. _at is the
-- time that the chunks are to bear, where it has been decided already. Where ids are given and one of them was seen before, nothing is written and nothing returned: the caller
-- then goes step by step.
CREATE OR REPLACE FUNCTION penstock.append_{suffix}(
    _partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea,
    _skew interval, _flush uuid, _epoch integer,
    _targets integer[] = '{}', _hashes uuid[] = '{}', _slots integer[] = '{}', _places bigint[] = '{}',
    _id_segments integer[] = '{}', _at timestamptz = NULL
) RETURNS TABLE (partition_id bigint, end_offset bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _segment integer;
    _seen boolean;
    _heads bigint[];
BEGIN
    -- In id order everywhere, so that two pushes can never wait for each other.
    PERFORM FROM penstock.partitions p WHERE p.id = ANY(_partitions) ORDER BY p.id FOR NO KEY UPDATE;
    IF NOT EXISTS (
        SELECT FROM penstock.queues q WHERE q.id = {queue} AND q.segment = {segment} AND q.epoch = _epoch
    ) THEN
        PERFORM penstock.refuse('the queue has moved on');
    END IF;
    FOREACH _segment IN ARRAY _id_segments LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM penstock.ids_{queue}_%s i WHERE i.hash = ANY($1))', _segment)
        INTO _seen USING _hashes;
        IF _seen THEN
            RETURN;
        END IF;
    END LOOP;
    IF cardinality(_hashes) > 0 THEN
        SELECT array_agg(h.end_offset ORDER BY i.ordinal) INTO _heads
        FROM unnest(_partitions) WITH ORDINALITY AS i (partition_id, ordinal)
        CROSS JOIN LATERAL (
            (SELECT c.end_offset FROM {chunks} c
             WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
            UNION ALL
            SELECT p.sealed_end FROM penstock.partitions p WHERE p.id = i.partition_id
            LIMIT 1
        ) h;
        INSERT INTO {ids} (hash, event_offset)
        -- With the epoch above the offset: the partition of the key may be another one by the time it is found.
        SELECT n.hash, (_epoch::bigint << 48) + _heads[n.slot] + n.place
        FROM unnest(_hashes, _slots, _places) AS n (hash, slot, place);
    END IF;
    UPDATE penstock.cursors c SET state = 0 WHERE c.partition_id = ANY(_partitions) AND c.state = 1;
    RETURN QUERY
    INSERT INTO {chunks} AS k (partition_id, end_offset, event_count, appended_at, target_group, flush_id, body)
    SELECT i.partition_id, h.end_offset + i.after, i.event_count, greatest(h.appended_at, coalesce(_at, clock_timestamp() + _skew)),
           i.target_group, _flush, substr(_bodies, i.start, i.size)
    FROM unnest(_partitions, _counts, _after, _starts, _sizes, _targets)
        AS i (partition_id, event_count, after, start, size, target_group)
    CROSS JOIN LATERAL (
        (SELECT c.end_offset, c.appended_at FROM {chunks} c
         WHERE c.partition_id = i.partition_id ORDER BY c.end_offset DESC LIMIT 1)
        UNION ALL
        SELECT p.sealed_end, p.sealed_at FROM penstock.partitions p WHERE p.id = i.partition_id
        LIMIT 1
    ) h
    RETURNING k.partition_id, k.end_offset;
END
$$

-- name: without_append
SELECT q.name FROM penstock.queues q
WHERE to_regproc(format('penstock.append_%s_%s', q.id, q.segment)) IS NULL

-- name: drop_append
DROP FUNCTION IF EXISTS penstock.append_{suffix}
