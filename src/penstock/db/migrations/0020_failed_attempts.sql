-- Failed attempts belong to an event, not to the position of a group: each row of the array is an offset from
-- next_offset on and the number of its failed attempts. The column attempts has the largest of these numbers.
-- A row of an earlier version has attempts without failures. They count as attempts of the event at next_offset.
ALTER TABLE penstock.positions ADD COLUMN failures bigint[] NOT NULL DEFAULT '{}';
