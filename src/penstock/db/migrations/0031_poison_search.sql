ALTER TABLE penstock.queries RENAME COLUMN suspicion TO poison_search;
