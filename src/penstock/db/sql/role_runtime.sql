-- The roles that Penstock's processes connect as. {owner} owns the schemas and migrates them; {server} takes events in and
-- hands them out; {engine} runs queries, and owns the results that it makes. All of it may be run again, and should be
-- after an upgrade.

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
-- Segments come and go while Penstock runs; the functions that make them run with the rights of the owner.
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA penstock
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {server}, {engine};
GRANT EXECUTE ON FUNCTION penstock.make_segment(integer, integer), penstock.make_append(integer, integer),
    penstock.drop_chunks(integer, integer), penstock.drop_ids(integer, integer), penstock.drop_append(integer, integer)
TO {server}, {engine};
-- What was migrated is the owner's to say.
REVOKE INSERT, UPDATE, DELETE ON penstock.migrations FROM {server}, {engine};

-- name: server
GRANT SELECT ON ALL TABLES IN SCHEMA penstock_live, penstock_history TO {server};
-- How far queries have come, and what they found, is the engine's to say.
REVOKE INSERT, UPDATE, DELETE ON penstock.progress, penstock.cycles, penstock.reports, penstock.query_totals FROM {server};
-- Of what waits at gates it may wake some, and write down what their buckets hold, when a limit changes.
REVOKE INSERT, DELETE ON penstock.gate_lanes FROM {server};
REVOKE DELETE ON penstock.gate_states FROM {server};
-- Nobody changes what was written down of the past.
REVOKE UPDATE ON penstock.audit FROM {server};
-- Results are tables of the engine's.
ALTER DEFAULT PRIVILEGES FOR ROLE {engine} IN SCHEMA penstock GRANT SELECT ON TABLES TO {server};
ALTER DEFAULT PRIVILEGES FOR ROLE {engine} IN SCHEMA penstock_live GRANT SELECT ON TABLES TO {server};
ALTER DEFAULT PRIVILEGES FOR ROLE {engine} IN SCHEMA penstock_history GRANT SELECT ON TABLES TO {server};

-- name: engine
GRANT CREATE ON SCHEMA penstock, penstock_live, penstock_history TO {engine};
-- Keys are for the server alone, and so is what is written down of who did what.
REVOKE ALL ON penstock.api_keys, penstock.audit FROM {engine};
-- Results and what waits in joins that are there already, and the view over all results, which is made anew as queries
-- come and go.
DO $$
DECLARE
    _relation regclass;
BEGIN
    FOR _relation IN
        SELECT c.oid FROM pg_class c
        WHERE c.relowner <> (SELECT r.oid FROM pg_roles r WHERE r.rolname = {engine_text}) AND (
            c.relnamespace IN ('penstock_live'::regnamespace, 'penstock_history'::regnamespace) AND c.relkind = 'v'
            OR c.relnamespace = 'penstock'::regnamespace
               AND (c.relkind = 'r' AND c.relname ~ '^(state|history|waiting)_[0-9]+$' OR c.relkind = 'v' AND c.relname = 'state'))
    LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO %I', _relation, {engine_text});
        EXECUTE format('GRANT SELECT ON %s TO %I', _relation, {server_text});
    END LOOP;
END
$$;

-- name: reader
-- Results that the engine makes from now on, for who may only look.
GRANT SELECT ON ALL TABLES IN SCHEMA penstock_live, penstock_history TO {reader};
GRANT SELECT ON penstock.state TO {reader};
ALTER DEFAULT PRIVILEGES FOR ROLE {engine} IN SCHEMA penstock_live GRANT SELECT ON TABLES TO {reader};
ALTER DEFAULT PRIVILEGES FOR ROLE {engine} IN SCHEMA penstock_history GRANT SELECT ON TABLES TO {reader};
