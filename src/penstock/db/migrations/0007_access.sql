-- Who may call the server. Of a key's secret only the SHA-256 is here; a key that was rotated has its previous one for
-- a while.
CREATE TABLE penstock.api_keys (
    id             text PRIMARY KEY,
    name           text NOT NULL,
    roles          text[] NOT NULL,
    -- Patterns: * is any run of characters, ? any one.
    queues         text[] NOT NULL,
    hash           bytea NOT NULL,
    previous_hash  bytea,
    previous_until timestamptz,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    rotated_at     timestamptz,
    expires_at     timestamptz,
    revoked_at     timestamptz,
    last_used_at   timestamptz
);

-- What was done with the rights of an administrator, to keys, and what was tried in vain.
CREATE TABLE penstock.audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    who        text NOT NULL,
    action     text NOT NULL,
    subject    text NOT NULL,
    address    text NOT NULL,
    outcome    text NOT NULL,
    request_id text NOT NULL
);
