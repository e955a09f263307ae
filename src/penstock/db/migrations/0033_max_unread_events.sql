-- The most events that a queue without groups may hold. Queues of earlier versions had no such limit, and get none.
ALTER TABLE penstock.queues ADD COLUMN max_unread_events bigint;
