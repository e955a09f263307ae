-- A limit on leases that end unanswered; lag and depth as plain SELECTs; ids that are known across epochs.

ALTER TABLE penstock.queues ADD COLUMN expiry_limit integer;

ALTER TABLE penstock.positions
    ADD COLUMN expiries integer NOT NULL DEFAULT 0,
    ADD COLUMN suspect_end bigint NOT NULL DEFAULT 0;

-- The functions that append are made anew when they are missed: what they write has changed.
DO $$
DECLARE
    _function regprocedure;
BEGIN
    FOR _function IN
        SELECT p.oid FROM pg_proc p
        WHERE p.pronamespace = 'penstock'::regnamespace AND p.proname ~ '^append_[0-9]+_[0-9]+$'
    LOOP
        EXECUTE format('DROP FUNCTION %s', _function);
    END LOOP;
END
$$;

-- Where a group stands in its partitions, as its queue's open segment and the last seals say. For the views below: whoever
-- may read them need not be able to read events. Plans are the same whatever the statistics of a young table say.
CREATE FUNCTION penstock.standing_of(_group integer, _queue integer, _segment integer)
RETURNS TABLE (partition text, partition_id bigint, next_offset bigint, end_offset bigint, leased boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    RETURN QUERY EXECUTE format('
        SELECT t.name, t.id, p.next_offset,
               coalesce((SELECT k.end_offset FROM penstock.chunks_%s_%s k
                         WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end),
               p.lease_id IS NOT NULL AND p.available_at > clock_timestamp()
        FROM penstock.cursors c
        JOIN penstock.partitions t ON t.id = c.partition_id
        CROSS JOIN LATERAL (
            SELECT * FROM penstock.positions p
            WHERE p.group_id = c.group_id AND p.partition_id = c.partition_id ORDER BY p.version DESC LIMIT 1
        ) p
        WHERE c.group_id = $1 AND c.state <> 1', _queue, _segment)
    USING _group;
EXCEPTION WHEN undefined_table THEN
    RETURN; -- deleted meanwhile
END
$$;

-- The partitions of a queue with the first offset that is still there and the one after the last.
CREATE FUNCTION penstock.partitions_of(_queue integer, _segment integer)
RETURNS TABLE (partition text, partition_id bigint, first_offset bigint, end_offset bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    RETURN QUERY EXECUTE format('
        SELECT t.name, t.id,
               coalesce((SELECT l.first_offset FROM penstock.segment_lanes l
                         WHERE l.partition_id = t.id ORDER BY l.end_offset LIMIT 1), t.sealed_end),
               coalesce((SELECT k.end_offset FROM penstock.chunks_%s_%s k
                         WHERE k.partition_id = t.id ORDER BY k.end_offset DESC LIMIT 1), t.sealed_end)
        FROM penstock.partitions t WHERE t.queue_id = $1', _queue, _segment)
    USING _queue;
EXCEPTION WHEN undefined_table THEN
    RETURN;
END
$$;

-- How far each group is behind, partition by partition; lanes that are drained and idle are left out.
CREATE VIEW penstock.partition_lag AS
SELECT q.name AS queue, g.name AS group_name, s.partition, s.partition_id, s.next_offset, s.end_offset,
       greatest(s.end_offset - s.next_offset, 0) AS lag, s.leased
FROM penstock.queues q
JOIN penstock.groups g ON g.queue_id = q.id
CROSS JOIN LATERAL penstock.standing_of(g.id, q.id, q.segment) s;

-- How far each group is behind. A subtraction for each partition that is in use, whatever the history.
CREATE VIEW penstock.lag AS
SELECT q.name AS queue, g.name AS group_name,
       (SELECT count(*) FROM penstock.cursors c WHERE c.group_id = g.id) AS partitions,
       s.partitions_behind, s.lag, s.leases
FROM penstock.queues q
JOIN penstock.groups g ON g.queue_id = q.id
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE s.end_offset > s.next_offset) AS partitions_behind,
           coalesce(sum(greatest(s.end_offset - s.next_offset, 0)), 0)::bigint AS lag,
           count(*) FILTER (WHERE s.leased) AS leases
    FROM penstock.standing_of(g.id, q.id, q.segment) s
) s;

-- How much each queue holds.
CREATE VIEW penstock.depth AS
SELECT q.name AS queue, d.partitions, d.events, d.appended
FROM penstock.queues q
CROSS JOIN LATERAL (
    SELECT count(*) AS partitions, coalesce(sum(p.end_offset - p.first_offset), 0)::bigint AS events,
           coalesce(sum(p.end_offset), 0)::bigint AS appended
    FROM penstock.partitions_of(q.id, q.segment) p
) d;
