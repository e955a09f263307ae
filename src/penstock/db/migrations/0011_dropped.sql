-- Events that conditions in Python left out, by cycle.

ALTER TABLE penstock.cycles ADD COLUMN dropped bigint;
