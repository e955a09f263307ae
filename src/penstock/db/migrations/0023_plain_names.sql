-- Tables and columns get the names that code and documentation use.
ALTER TABLE penstock.plane_queues RENAME TO queen_queues;
ALTER TABLE penstock.shared_queries RENAME TO client_queries;
ALTER TABLE penstock.shared_state RENAME TO client_query_state;
ALTER VIEW penstock.shared_open_state RENAME TO client_query_open_state;
ALTER TABLE penstock.segment_lanes RENAME TO segment_partitions;
ALTER TABLE penstock.gate_lanes RENAME TO gate_keys;
ALTER TABLE penstock.gate_keys DROP COLUMN put_back;
ALTER TABLE penstock.writes RENAME TO staged_writes;
ALTER TABLE penstock.shed RENAME TO shed_events;
ALTER TABLE penstock.partitions RENAME COLUMN is_lane TO is_key_partition;
ALTER TABLE penstock.queues RENAME COLUMN lanes_warned_at TO partitions_warned_at;
ALTER FUNCTION penstock.standing_of RENAME TO partition_progress;

-- Views follow a renamed table, bodies of functions do not.
DO $$
DECLARE
    _definition text;
BEGIN
    FOR _definition IN
        SELECT pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace = 'penstock'::regnamespace AND prosrc ~ '\m(segment_lanes|gate_lanes|standing_of)\M'
    LOOP
        _definition := regexp_replace(_definition, '\msegment_lanes\M', 'segment_partitions', 'g');
        _definition := regexp_replace(_definition, '\mgate_lanes\M', 'gate_keys', 'g');
        _definition := regexp_replace(_definition, '\mstanding_of\M', 'partition_progress', 'g');
        EXECUTE _definition;
    END LOOP;
END
$$;
