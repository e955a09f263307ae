-- Views that people create in the console. Processes of `penstock sql --stored` run them.
CREATE TABLE penstock.stored_statements (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The name of the view.
    name       text NOT NULL UNIQUE,
    -- CREATE MATERIALIZED VIEW, and the queues and plain views that it needs.
    statement  text NOT NULL,
    -- The id of the API key, or empty without access control.
    author     text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The view is to be deleted with its result. The process that runs it does that, and deletes the row.
    is_dropped boolean NOT NULL DEFAULT false,
    -- When a process that runs stored statements last looked at the row.
    seen_at    timestamptz,
    -- Why the view does not run.
    error      text
) WITH (fillfactor = 50);
