-- How far each source has been read; written with the push of what was read.
CREATE TABLE penstock.sources (
    name       text PRIMARY KEY,
    kind       text NOT NULL,
    queue      text NOT NULL,
    -- Where to go on, as the source has it; null: it was never read.
    position   jsonb,
    events     bigint NOT NULL DEFAULT 0,
    -- What could not be events, and went to the dead letters.
    rejected   bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- Rules: when the results of a query, which are events in a queue, are worth an alert.
CREATE TABLE penstock.rules (
    name       text PRIMARY KEY,
    queue      text NOT NULL,
    alerts     text NOT NULL,
    definition jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What a rule remembers of each key: whether it fires, since when, and the last windows.
CREATE TABLE penstock.rule_states (
    rule       text NOT NULL REFERENCES penstock.rules ON DELETE CASCADE,
    key        text COLLATE "C" NOT NULL,
    is_firing  boolean NOT NULL,
    since      timestamptz,
    seen_at    timestamptz NOT NULL,
    state      jsonb NOT NULL,
    PRIMARY KEY (rule, key)
) WITH (fillfactor = 60);
CREATE INDEX rule_states_firing ON penstock.rule_states (rule) WHERE is_firing;
