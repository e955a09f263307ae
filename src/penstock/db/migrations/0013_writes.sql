-- Writes from Spark: which tasks staged what, and the last write of each writer.

ALTER TABLE penstock.uploads ADD COLUMN writer text;
ALTER TABLE penstock.uploads ADD COLUMN version bigint;

CREATE TABLE penstock.writes (
    queue_id   integer NOT NULL REFERENCES penstock.queues ON DELETE CASCADE,
    writer     text NOT NULL,
    version    bigint NOT NULL,
    run        text NOT NULL,
    is_kept    boolean NOT NULL,
    events     bigint NOT NULL,
    written_at timestamptz NOT NULL,
    PRIMARY KEY (queue_id, writer)
);
