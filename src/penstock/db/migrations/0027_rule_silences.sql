-- Until when a rule raises no new alerts for a key; key '' is for all keys.
CREATE TABLE penstock.rule_silences (
    rule  text NOT NULL REFERENCES penstock.rules ON DELETE CASCADE,
    key   text COLLATE "C" NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (rule, key)
);
