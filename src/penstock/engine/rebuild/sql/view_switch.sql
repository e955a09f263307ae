-- name: lock_timeout
SELECT set_config('lock_timeout', %(timeout)s, true)

-- name: lock_catalog
-- As in query_registry.sql.
SELECT pg_advisory_xact_lock(7812746384129)

-- name: lock_held
SELECT q.id FROM penstock.queries q
JOIN unnest(%(queries)s::integer[], %(fences)s::bigint[]) AS h (id, fence) ON h.id = q.id AND h.fence = q.fence
ORDER BY q.id
FOR UPDATE OF q

-- name: is_behind
-- Whether the group of the new version is behind that of the old one in a partition that both read.
SELECT EXISTS (
    SELECT FROM penstock.groups o
    JOIN penstock.groups n ON n.queue_id = o.queue_id AND n.query_id = %(new)s
    JOIN penstock.cursors c ON c.group_id = o.id
    CROSS JOIN LATERAL penstock.current_position(o.id, c.partition_id) p
    LEFT JOIN LATERAL penstock.current_position(n.id, c.partition_id) r ON true
    WHERE o.query_id = %(old)s AND coalesce(r.next_offset, 0) < p.next_offset
)

-- name: next_cycle
-- The switch has the number of a cycle, which none of the ledger has.
UPDATE penstock.queries SET cycle = cycle + 1 WHERE id = %(query)s RETURNING cycle, clock_timestamp()

-- name: inherit
-- Other views read the changes from the first one on, so the view is as old as its changes queue.
UPDATE penstock.queries n SET cycle = greatest(n.cycle, o.cycle), is_paused = o.is_paused, stopped_at = o.stopped_at,
    created_at = CASE WHEN %(keeps_changes)s THEN o.created_at ELSE clock_timestamp() END
FROM penstock.queries o WHERE n.id = %(new)s AND o.id = %(old)s

-- name: restart_changes
UPDATE penstock.queries SET created_at = clock_timestamp() WHERE id = %(query)s

-- name: delete_old
DELETE FROM penstock.queries WHERE id = %(old)s

-- name: rename_groups
UPDATE penstock.groups SET name = %(old_name)s, query_id = %(old_name)s WHERE query_id = %(new_name)s

-- name: delete_dead_letters
-- The new version has read the events of dead letters again, except those that the log no longer has.
DELETE FROM penstock.dead_letters d
USING penstock.partitions p
WHERE d.group_name = %(old_name)s AND p.id = d.partition_id
    AND EXISTS (SELECT FROM penstock.groups n WHERE n.query_id = %(new_name)s AND n.queue_id = d.queue_id)
    AND EXISTS (SELECT FROM penstock.groups o WHERE o.query_id = %(old_name)s AND o.queue_id = d.queue_id)
    AND d.event_offset >= coalesce(
        (SELECT l.first_offset FROM penstock.segment_partitions l WHERE l.partition_id = p.id ORDER BY l.end_offset LIMIT 1),
        p.sealed_end)

-- name: rename_dead_letters
UPDATE penstock.dead_letters SET group_name = %(old_name)s WHERE group_name = %(new_name)s

-- name: store_definition
UPDATE penstock.queries SET name = %(name)s, description = %(description)s, fingerprint = %(fingerprint)s,
    sink_queue = %(sink)s, history_seconds = %(history)s,
    view = view || jsonb_build_object('indexes', %(indexes)s::jsonb, 'is_shown', true),
    lease_until = CASE WHEN %(lease)s > interval '0' THEN clock_timestamp() + %(lease)s ELSE 'epoch' END,
    driver = CASE WHEN %(lease)s > interval '0' THEN driver END
WHERE id = %(query)s

-- name: indexes
SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass('penstock.view_' || %(view)s::integer)
    AND starts_with(c.relname, 'view_' || %(view)s::integer || '_index_')

-- name: drop_index
DROP INDEX penstock.{name}

-- name: drop_view
DROP VIEW IF EXISTS penstock_live.{view}

-- name: grants
-- The statements that grant again what a view grants to others.
SELECT format('GRANT %%s ON penstock_live.%%I TO %%s%%s', a.privilege_type, c.relname,
              CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END,
              CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
WHERE c.oid = to_regclass(format('penstock_live.%%I', %(name)s::text)) AND a.grantee <> c.relowner
