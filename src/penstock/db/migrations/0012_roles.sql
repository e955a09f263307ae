-- The tables of a segment are made and dropped by these functions, with the rights of whoever owns the schema. So a role that
-- pushes and pops need own nothing. Names are made of numbers alone.
CREATE FUNCTION penstock.make_segment(_queue integer, _segment integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM penstock.segments s WHERE s.queue_id = _queue AND s.segment = _segment) THEN
        RAISE EXCEPTION 'queue % has no segment %', _queue, _segment;
    END IF;
    EXECUTE format('
        CREATE TABLE penstock.chunks_%1$s_%2$s (
            partition_id bigint NOT NULL,
            end_offset   bigint NOT NULL,
            event_count  integer NOT NULL,
            appended_at  timestamptz NOT NULL,
            target_group integer,
            flush_id     uuid NOT NULL,
            body         bytea NOT NULL,
            PRIMARY KEY (partition_id, end_offset)
        )', _queue, _segment);
    -- It is compressed already: PostgreSQL need not try again.
    EXECUTE format('ALTER TABLE penstock.chunks_%s_%s ALTER COLUMN body SET STORAGE EXTERNAL', _queue, _segment);
    -- The hash is of the key and the id, so it is found whatever the partition.
    EXECUTE format('CREATE TABLE penstock.ids_%s_%s (hash uuid NOT NULL, event_offset bigint NOT NULL)', _queue, _segment);
    EXECUTE format('CREATE INDEX ids_%1$s_%2$s_hash ON penstock.ids_%1$s_%2$s (hash)', _queue, _segment);
    PERFORM penstock.make_append(_queue, _segment);
END
$$;

-- Append chunks to a segment: one call, one transaction, one round trip. Its statements see what was committed before
-- they begin, so the heads are read after the locks are held; their plans are kept for the session. _after counts the
-- events of the call that are in the partition up to and with the chunk, _starts and _sizes cut the chunk out of
-- _bodies, _slots and _places say which chunk's partition an id belongs to and how far after its head. _at is the
-- time that the chunks are to bear, where it has been decided already. Where ids are given and one of them was seen before, nothing is written and nothing returned: the caller
-- then goes step by step.
CREATE FUNCTION penstock.make_append(_queue integer, _segment integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _suffix text := format('%s_%s', _queue, _segment);
    _text text := $text$
CREATE OR REPLACE FUNCTION penstock.append_{suffix}(
    _partitions bigint[], _counts integer[], _after integer[], _starts integer[], _sizes integer[], _bodies bytea,
    _skew interval, _flush uuid, _epoch integer,
    _targets integer[] = '{}', _hashes uuid[] = '{}', _slots integer[] = '{}', _places bigint[] = '{}',
    _id_segments integer[] = '{}', _at timestamptz = NULL
) RETURNS TABLE (partition_id bigint, end_offset bigint) LANGUAGE plpgsql AS $append$
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
$append$
$text$;
BEGIN
    _text := replace(_text, '{chunks}', 'penstock.chunks_' || _suffix);
    _text := replace(_text, '{ids}', 'penstock.ids_' || _suffix);
    _text := replace(_text, '{suffix}', _suffix);
    _text := replace(_text, '{queue}', _queue::text);
    EXECUTE replace(_text, '{segment}', _segment::text);
END
$$;

CREATE FUNCTION penstock.drop_chunks(_queue integer, _segment integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS penstock.chunks_%s_%s', _queue, _segment);
END
$$;

CREATE FUNCTION penstock.drop_ids(_queue integer, _segment integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS penstock.ids_%s_%s', _queue, _segment);
END
$$;

CREATE FUNCTION penstock.drop_append(_queue integer, _segment integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('DROP FUNCTION IF EXISTS penstock.append_%s_%s', _queue, _segment);
END
$$;

REVOKE EXECUTE ON FUNCTION penstock.make_segment(integer, integer), penstock.make_append(integer, integer),
    penstock.drop_chunks(integer, integer), penstock.drop_ids(integer, integer), penstock.drop_append(integer, integer)
FROM PUBLIC;
