-- Statements that users of the console's SQL page have saved.
CREATE TABLE penstock.saved_statements (
    name      text PRIMARY KEY,
    statement text NOT NULL,
    -- The id of the API key, or empty without access control.
    saved_by  text NOT NULL DEFAULT '',
    saved_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
