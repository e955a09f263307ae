-- The read-only role. It reads results, the state of queues, groups, gates and queries, and the ledger. It reads neither
-- events nor the content of dead letters nor API keys, and changes nothing. {reader} is the login, {owner} the owner of the
-- schemas, {database} the database. The statements after "create" may be run again.

-- name: create
CREATE ROLE {reader} LOGIN NOINHERIT CONNECTION LIMIT 20;

-- name: limits
-- Settings of its sessions.
ALTER ROLE {reader} SET default_transaction_read_only = on;
ALTER ROLE {reader} SET statement_timeout = '15s';
ALTER ROLE {reader} SET lock_timeout = '2s';
ALTER ROLE {reader} SET idle_in_transaction_session_timeout = '30s';
ALTER ROLE {reader} SET max_parallel_workers_per_gather = 0;
ALTER ROLE {reader} SET search_path = penstock_live, penstock;
ALTER ROLE {reader} SET timezone = 'UTC';

-- name: superuser
-- Needs a superuser: limits the disk space of sorts, and keeps a SELECT from filling the write-ahead log.
ALTER ROLE {reader} SET temp_file_limit = '256MB';
DO $$
DECLARE
    _function regprocedure;
BEGIN
    FOR _function IN
        SELECT p.oid::regprocedure FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = 'pg_logical_emit_message'
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', _function);
    END LOOP;
END
$$;

-- name: grants
-- A migration that adds a relation to this list also grants it to the roles that have the others, as 0040 does.
GRANT CONNECT ON DATABASE {database} TO {reader};
GRANT USAGE ON SCHEMA penstock, penstock_live, penstock_history TO {reader};
-- Results of all queries, including future ones.
GRANT SELECT ON ALL TABLES IN SCHEMA penstock_live, penstock_history TO {reader};
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA penstock_live GRANT SELECT ON TABLES TO {reader};
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA penstock_history GRANT SELECT ON TABLES TO {reader};
GRANT SELECT ON penstock.state, penstock.lag, penstock.partition_lag, penstock.depth, penstock.gates,
                penstock.query_totals, penstock.queues, penstock.groups, penstock.vitals TO {reader};
GRANT SELECT (queue, sink, guarantee, written, batches, retries, busy, dead_letters, lost, running, resting, lag, updated_at)
    ON penstock.sinks TO {reader};
GRANT SELECT (id, name, result, view, sink_queue, cycle, driver, lease_until, history_seconds, created_at, is_paused, stopped_at)
    ON penstock.queries TO {reader};
GRANT SELECT (query_id, cycle, fence, planned, planned_at, started_at, committed_at, events_in, events_out, windows, changes,
              late, dead, took, error, oldest_at, watermark, dropped) ON penstock.cycles TO {reader};
GRANT SELECT (id, queue_id, group_name, stage, attempts, failed_at, first_failed_at, redrives, redriven_at)
    ON penstock.dead_letters TO {reader};
