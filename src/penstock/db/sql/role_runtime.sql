-- The roles of Penstock's processes. {owner} owns the schemas and upgrades them. {server} accepts and delivers events.
-- {engine} runs queries and owns their results. {pusher} pushes from SQL. All statements may be run again, and should be after an upgrade.

-- name: create
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {role_text}) THEN
        CREATE ROLE {role} LOGIN;
    END IF;
END
$$;

-- name: both
GRANT CONNECT, TEMPORARY ON DATABASE {database} TO {server}, {engine};
GRANT USAGE ON SCHEMA penstock, penstock_live, penstock_history TO {server}, {engine};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA penstock TO {server}, {engine};
-- Segments are created while Penstock runs, by functions with the rights of the owner.
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA penstock
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {server}, {engine};
GRANT USAGE ON SEQUENCE penstock.coordination_versions TO {server}, {engine};
GRANT SELECT ON SEQUENCE penstock.inbox_sequence TO {server}, {engine};
GRANT EXECUTE ON FUNCTION penstock.make_segment(integer, integer), penstock.make_append(integer, integer),
    penstock.drop_chunks(integer, integer), penstock.drop_ids(integer, integer), penstock.drop_append(integer, integer)
TO {server}, {engine};
-- Only the owner upgrades the schema.
REVOKE INSERT, UPDATE, DELETE ON penstock.migrations FROM {server}, {engine};

-- name: server
GRANT SELECT ON ALL TABLES IN SCHEMA penstock_live, penstock_history TO {server};
-- Only the engine writes the progress and the ledger of queries.
REVOKE INSERT, UPDATE, DELETE ON penstock.progress, penstock.cycles, penstock.reports, penstock.query_totals FROM {server};
-- When a limit changes, the server wakes waiting key partitions and settles their token buckets.
REVOKE INSERT, DELETE ON penstock.gate_keys FROM {server};
REVOKE DELETE ON penstock.gate_states FROM {server};
-- The audit log is append-only.
REVOKE UPDATE ON penstock.audit FROM {server};
-- The engine owns the tables and views of results.
ALTER DEFAULT PRIVILEGES FOR ROLE {engine} IN SCHEMA penstock GRANT SELECT ON TABLES TO {server};
ALTER DEFAULT PRIVILEGES FOR ROLE {engine} IN SCHEMA penstock_live GRANT SELECT ON TABLES TO {server};
ALTER DEFAULT PRIVILEGES FOR ROLE {engine} IN SCHEMA penstock_history GRANT SELECT ON TABLES TO {server};

-- name: engine
GRANT CREATE ON SCHEMA penstock, penstock_live, penstock_history TO {engine};
-- Only the server uses API keys and the audit log.
REVOKE ALL ON penstock.api_keys, penstock.audit FROM {engine};
-- Existing results and join states, and the view over all results, which is recreated when a query is added or removed.
DO $$
DECLARE
    _relation regclass;
BEGIN
    FOR _relation IN
        SELECT c.oid FROM pg_class c
        WHERE c.relowner <> (SELECT r.oid FROM pg_roles r WHERE r.rolname = {engine_text}) AND (
            c.relnamespace IN ('penstock_live'::regnamespace, 'penstock_history'::regnamespace) AND c.relkind = 'v'
            OR c.relnamespace = 'penstock'::regnamespace
               AND (c.relkind = 'r' AND c.relname ~ '^(state|history|view|waiting)_[0-9]+$' OR c.relkind = 'v' AND c.relname = 'state'))
    LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO %I', _relation, {engine_text});
        EXECUTE format('GRANT SELECT ON %s TO %I', _relation, {server_text});
    END LOOP;
END
$$;

-- name: reader
-- Results of the engine, including future ones, for the read-only role.
GRANT SELECT ON ALL TABLES IN SCHEMA penstock_live, penstock_history TO {reader};
GRANT SELECT ON penstock.state TO {reader};
ALTER DEFAULT PRIVILEGES FOR ROLE {engine} IN SCHEMA penstock_live GRANT SELECT ON TABLES TO {reader};
ALTER DEFAULT PRIVILEGES FOR ROLE {engine} IN SCHEMA penstock_history GRANT SELECT ON TABLES TO {reader};

-- name: pusher
-- The right to push from SQL, for the roles of applications: GRANT {pusher} TO ...
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {pusher_text}) THEN
        CREATE ROLE {pusher} NOLOGIN;
    END IF;
END
$$;
GRANT USAGE ON SCHEMA penstock TO {pusher};
GRANT EXECUTE ON FUNCTION penstock.push, penstock.push_many, penstock.push_change, penstock.outbox, penstock.drop_outbox,
    penstock.has_queue
TO {pusher};
