-- Whether the chunks and dead letters of a queue are encrypted. Those that exist stay as they are.
ALTER TABLE penstock.queues ADD COLUMN encrypted boolean NOT NULL DEFAULT false;
