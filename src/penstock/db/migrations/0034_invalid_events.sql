-- How a push over HTTP with invalid events is treated.
ALTER TABLE penstock.queues ADD COLUMN invalid_events text NOT NULL DEFAULT 'auto'
    CHECK (invalid_events IN ('auto', 'refuse', 'dead_letter'));
