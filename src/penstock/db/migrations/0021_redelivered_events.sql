-- Events before this offset were also delivered under an earlier lease. An ack that names no lease cannot tell which of
-- the consumers sends it.
ALTER TABLE penstock.positions ADD COLUMN redelivered_end bigint NOT NULL DEFAULT 0;
